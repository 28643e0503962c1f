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
	needs := []wire.Need{
		{Pool: 1, Kind: wire.Balance, Amount: 1},
		{Pool: 2, Kind: wire.Slots, Amount: 1},
		{Pool: 3, Kind: wire.Limit, Amount: 1},
		{Pool: 4, Kind: wire.Limit, Amount: 1},
	}
	request := &wire.LeaseRequest{Session: 1, Account: "acc", Number: 1, Needs: [][]wire.Need{needs, needs, needs}}
	result := &allocator.Result{Number: 1, New: true, Response: wire.LeaseResponse{Decisions: []wire.Decision{
		{Reason: wire.LimitInsufficient, Pool: 4}, {Reason: wire.NoSlot, Pool: 2}, {Granted: true},
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
