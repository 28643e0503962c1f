package allocator

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// anyAmount returns a number that a faulty proxy may send.
func anyAmount(r *rand.Rand) int64 {
	extremes := []int64{math.MinInt64, -1, 0, 1, 1000, 1 << 54, 1 << 60, 1<<61 - 1, 1 << 61, 1 << 62, math.MaxInt64 - 1, math.MaxInt64}
	if r.IntN(3) == 0 {
		return r.Int64() >> r.IntN(63)
	}
	return extremes[r.IntN(len(extremes))]
}

// checkTotals compares the pools with sums that cannot overflow.
func checkTotals(t *testing.T, a *Allocator) {
	t.Helper()
	sums := map[wire.PoolID]*big.Int{}
	for id, p := range a.Pools {
		sums[id] = new(big.Int).Add(big.NewInt(p.Free), big.NewInt(p.Settled))
	}
	for key, l := range a.Leases {
		held := new(big.Int).Sub(big.NewInt(l.Granted), big.NewInt(l.Returned))
		held.Sub(held, big.NewInt(l.Charged))
		if held.Sign() < 0 || l.Granted < 0 || l.Returned < 0 {
			t.Fatalf("session %d holds %s of pool %d: %+v", key.Session, held, key.Pool, *l)
		}
		sums[key.Pool].Add(sums[key.Pool], held)
	}
	for id, p := range a.Pools {
		if sums[id].Cmp(big.NewInt(p.Total)) != 0 {
			t.Fatalf("pool %d has a total of %d, but its parts are %s: %+v", id, p.Total, sums[id], *p)
		}
	}
}

func TestNoAmountsOfAFaultyProxyMakeTheTotalsOverflow(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := oneSlotBatch()
		a := b.Allocator
		a.Pools[2] = &Pool{ID: 2, Kind: wire.Balance, Account: "acc", Central: r.IntN(2) == 0, Generation: 1, Total: 1 << 55, Free: 1 << 55}
		a.Pools[3] = &Pool{ID: 3, Kind: wire.Limit, Account: "acc", Central: r.IntN(2) == 0, Generation: 1, Unlimited: true}
		b.Sessions[3] = &session.Record{ID: 3, State: session.Fenced}
		b.SinceLoss = []time.Duration{0, 24 * time.Hour}[r.IntN(2)]
		for number := range int64(60) {
			s := wire.SessionID(1 + r.IntN(3))
			var reports []wire.LeaseReport
			for range r.IntN(4) {
				report := wire.LeaseReport{Pool: wire.PoolID(2 + r.IntN(2)), Generation: 1, GrantedSeen: anyAmount(r), Returned: anyAmount(r), Idle: anyAmount(r), Charged: anyAmount(r)}
				if l := a.Leases[LeaseKey{report.Pool, s}]; l != nil && r.IntN(2) == 0 { // it returns all that it has
					report.GrantedSeen, report.Returned = l.Granted, l.Granted
				}
				reports = append(reports, report)
			}
			if r.IntN(3) == 0 {
				b.ApplyReturn(&wire.Return{Session: s, Account: "acc", Reports: reports})
				checkTotals(t, a)
				continue
			}
			request := &wire.LeaseRequest{Session: s, Account: "acc", Number: number + 1, Reports: reports}
			for range 1 + r.IntN(3) {
				request.Needs = append(request.Needs, []wire.Need{{Pool: 2, Kind: wire.Balance, Amount: anyAmount(r)}, {Pool: 3, Kind: wire.Limit, Amount: anyAmount(r)}}[r.IntN(2):])
			}
			b.Decide(request, &PendingRequest{}, func(*Batch) {})
			checkTotals(t, a)
		}
	}
}
