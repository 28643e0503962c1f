package session

import (
	"testing"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// The number of entries is bounded: the floor replaces those that were dropped.
func TestInvalidationsAreBounded(t *testing.T) {
	t.Parallel()
	var k Invalidations
	k.BeginSession(1)
	for i := range maxFloors + 10 {
		k.Apply(wire.KeyChange{Revision: int64(i + 2), Kind: wire.KeyRevoked, KeyHash: apikey.Hash{byte(i), byte(i >> 8), byte(i >> 16)}})
	}
	if n := len(k.revoked) + len(k.keys) + len(k.accounts); n > maxFloors {
		t.Errorf("%d entries; want at most %d", n, maxFloors)
	}
	if k.Revoked(apikey.Hash{}) {
		t.Error("no entry was dropped")
	}
	if k.IsCurrent(RecordVersion{Revision: 2, Session: k.Session()}) {
		t.Error("a record that was read before the changes is current")
	}
	if !k.IsCurrent(RecordVersion{Revision: maxFloors + 11, Session: k.Session()}) {
		t.Error("a record that was read after the changes is not current")
	}
}

// Postgres does not have a revocation that an operator has appended, so no record
// that is read later takes its place.
func TestRevocationWithoutARevisionIsKept(t *testing.T) {
	t.Parallel()
	var k Invalidations
	k.BeginSession(1)
	direct := apikey.Hash{1, 2, 3, 4}
	k.Apply(wire.KeyChange{Kind: wire.KeyRevoked, KeyHash: direct})
	for i := range maxFloors + 10 {
		k.Apply(wire.KeyChange{Revision: int64(i + 2), Kind: wire.KeyRevoked, KeyHash: apikey.Hash{byte(i), byte(i >> 8), byte(i >> 16)}})
	}
	if !k.Revoked(direct) {
		t.Error("the revocation was dropped with those that Postgres has")
	}
}
