package session

import (
	"testing"

	"modelgateway/shared/apikey"
	"modelgateway/shared/wire"
)

// What is remembered of single keys is bounded; what is forgotten is made good
// by the floor.
func TestKnowledgeIsBounded(t *testing.T) {
	t.Parallel()
	var k Invalidations
	k.BeginSession(1)
	for i := range maxFloors + 10 {
		k.Apply(wire.KeyChange{Revision: int64(i + 2), Kind: wire.KeyRevoked, KeyHash: apikey.Hash{byte(i), byte(i >> 8), byte(i >> 16)}})
	}
	if n := len(k.revoked) + len(k.keys) + len(k.accounts); n > maxFloors {
		t.Errorf("%d notes; want at most %d", n, maxFloors)
	}
	if k.Revoked(apikey.Hash{}) {
		t.Error("nothing was forgotten")
	}
	if k.IsCurrent(RecordVersion{Revision: 2, Session: k.Session()}) {
		t.Error("a reading from before is current")
	}
	if !k.IsCurrent(RecordVersion{Revision: maxFloors + 11, Session: k.Session()}) {
		t.Error("a reading from after is not current")
	}
}
