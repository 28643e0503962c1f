package lease

import (
	"testing"

	"modelgateway/shared/apikey"
)

// What is remembered of single keys is bounded; what is forgotten is made good
// by the floor.
func TestKnowledgeIsBounded(t *testing.T) {
	t.Parallel()
	var k Knowledge
	k.Begin(1)
	for i := range maxFloors + 10 {
		k.Apply(Change{Rev: int64(i + 2), Kind: KeyRevoked, KeyHash: apikey.Hash{byte(i), byte(i >> 8), byte(i >> 16)}})
	}
	if n := len(k.revoked) + len(k.keys) + len(k.accounts); n > maxFloors {
		t.Errorf("%d notes; want at most %d", n, maxFloors)
	}
	if k.Revoked(apikey.Hash{}) {
		t.Error("nothing was forgotten")
	}
	if k.Current(Reading{Rev: 2, Session: k.Session()}) {
		t.Error("a reading from before is current")
	}
	if !k.Current(Reading{Rev: maxFloors + 11, Session: k.Session()}) {
		t.Error("a reading from after is not current")
	}
}
