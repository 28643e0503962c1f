package allocator

import (
	"math"
	"testing"

	"modelgateway/shared/wire"
)

func TestOutageAllowance(t *testing.T) {
	t.Parallel()
	o := OutageAllowance{Percent: 10, Max: 500, SlotsPercent: 20}
	for _, tt := range []struct {
		name string
		pool Pool
		live int64
		want int64
	}{
		{"a share of the free balance", Pool{Kind: wire.Balance, Total: 9000, Free: 1005}, 1, 100},
		{"shared by the live proxies", Pool{Kind: wire.Balance, Free: 1000}, 4, 25},
		{"at most the maximum for each", Pool{Kind: wire.Balance, Free: 1 << 61}, 4, 500},
		{"nothing of an overdrawn balance", Pool{Kind: wire.Balance, Free: -1000}, 1, 0},
		{"nothing of a pool without a limit", Pool{Kind: wire.KeyLimit, Unlimited: true, Free: 1000}, 1, 0},
		{"a share of the slots", Pool{Kind: wire.Slots, Total: 100, Free: 50}, 4, 5},
		{"one of few slots", Pool{Kind: wire.Slots, Total: 3, Free: 3}, 16, 1},
		{"no slot if none is free", Pool{Kind: wire.Slots, Total: 3, Free: 0}, 1, 0},
		{"more slots than anyone has", Pool{Kind: wire.Slots, Total: math.MaxInt64, Free: 7}, 1, 7},
		{"an unknown number of live proxies", Pool{Kind: wire.Balance, Free: 1000}, 0, 100},
	} {
		if got := o.Of(&tt.pool, tt.live); got != tt.want {
			t.Errorf("%s: got %d; want %d", tt.name, got, tt.want)
		}
		if got := (OutageAllowance{}).Of(&tt.pool, tt.live); got != 0 {
			t.Errorf("%s: got %d without an allowance; want 0", tt.name, got)
		}
	}
}
