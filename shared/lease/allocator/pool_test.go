package allocator

import (
	"testing"

	"modelgateway/shared/wire"
)

// An account deposits 10000 units each month and spends 9500 of them. The sum of
// all its deposits does not reduce its headroom.
func TestHeadroomDoesNotShrinkWithRepeatedDeposits(t *testing.T) {
	t.Parallel()
	p := &Pool{ID: 1, Kind: wire.Balance}
	for month := range 24 {
		p.Adjust(10_000)
		if !p.HasHeadroom(4, 1) {
			t.Fatalf("no headroom in month %d with %d free", month+1, p.Free)
		}
		p.Free -= 9500
		p.Settled += 9500
	}
}

func TestHeadroom(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		pool    Pool
		n, need int64
		want    bool
	}{
		{"plenty", Pool{Kind: wire.Balance, Total: 1000, Free: 1000}, 4, 10, true},
		{"a quarter is free", Pool{Kind: wire.Balance, Total: 1000, Free: 250}, 1, 1, false},
		{"too little for each session", Pool{Kind: wire.Balance, Total: 1000, Free: 1000}, 4, 32, false},
		{"a high key limit", Pool{Kind: wire.Limit, Total: 1000, Free: 1000}, 4, 10, true},
		{"a low key limit", Pool{Kind: wire.Limit, Total: 300, Free: 300}, 4, 10, false},
		{"unlimited pools need none", Pool{Kind: wire.Balance, Unlimited: true, Free: 1000}, 1, 1, false},
		{"fewer than ten slots for each session", Pool{Kind: wire.Slots, Total: 39, Free: 39}, 4, 1, false},
		{"ten slots for each session", Pool{Kind: wire.Slots, Total: 80, Free: 80}, 4, 1, true},
	}
	for _, tt := range tests {
		if got := tt.pool.HasHeadroom(tt.n, tt.need); got != tt.want {
			t.Errorf("%s: got %t; want %t", tt.name, got, tt.want)
		}
	}
}

// An account whose balance was corrected is served from idle units again with its next request, unless little is left.
func TestCorrectionThatLeavesMuchKeepsEscrowMode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		by      int64
		central bool
	}{"a deposit": {1000, false}, "a correction that leaves much": {-300, false}, "one that leaves little": {-501, true}, "one below zero": {-2000, true}} {
		p := Pool{Kind: wire.Balance, Generation: 7, Total: 1000, Free: 600, Settled: 100} // 300 are outstanding
		p.Adjust(test.by)
		if p.Central != test.central || p.Generation > 7 != test.central {
			t.Errorf("%s: central %t in generation %d; want %t", name, p.Central, p.Generation, test.central)
		}
	}
}
