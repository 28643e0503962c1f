package leasing

import (
	"maps"
	"testing"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// The spend limit of a key and the windows of other limits are pools of one kind: the alert is that of the pool which is spent.
func TestOnlyTheSpentPoolOfARefusalHasAnAlert(t *testing.T) {
	t.Parallel()
	need := func(pool wire.PoolID, kind wire.PoolKind) wire.Need { return wire.Need{Pool: pool, Kind: kind, Amount: 1} }
	needs := []wire.Need{need(1, wire.Balance), need(2, wire.Slots), need(3, wire.Limit), need(4, wire.Limit)}
	request := &wire.LeaseRequest{Session: 1, Account: "acc", Number: 1, Needs: [][]wire.Need{needs, needs, needs}}
	result := &allocator.Result{Number: 1, New: true, Response: wire.LeaseResponse{Decisions: []wire.Decision{
		{Reason: wire.LimitSpent, Pool: 4}, {Reason: wire.NoSlot, Pool: 2}, {Granted: true},
	}}}
	results := map[allocator.RequestKey]*allocator.Result{{Session: 1, Account: "acc"}: result}
	if got := RefusedPools([]*wire.LeaseRequest{request}, results); !maps.Equal(got, map[wire.PoolID]bool{4: true}) {
		t.Errorf("got %v; want the window alone", got)
	}
	result.New = false
	if got := RefusedPools([]*wire.LeaseRequest{request}, results); got != nil {
		t.Errorf("of a repetition: got %v", got)
	}
}
