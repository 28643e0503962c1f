package allocator

import (
	"testing"

	"modelgateway/shared/wire"
)

func windowRequest(number int64, pools ...wire.PoolID) *wire.LeaseRequest {
	needs := []wire.Need{{Pool: 1, Kind: wire.Balance, Amount: 10}}
	for _, id := range pools {
		needs = append(needs, wire.Need{Pool: id, Kind: wire.Limit, Amount: 10})
	}
	return &wire.LeaseRequest{Session: 1, Account: "acc", Number: number, Needs: [][]wire.Need{needs}}
}

func limitedAllocator(limits ...*Pool) *Allocator {
	a := New()
	a.Pools[1] = &Pool{ID: 1, Kind: wire.Balance, Account: "acc", Central: true, Generation: 1, Total: 1000, Free: 1000}
	for _, p := range limits {
		p.Kind, p.Account, p.Generation, p.Free = wire.Limit, "acc", 1, p.Total
		a.Pools[p.ID] = p
	}
	return a
}

func TestRequestForAnotherWindowTakesNothing(t *testing.T) {
	t.Parallel()
	a := limitedAllocator(&Pool{ID: 11, Total: 100}, &Pool{ID: 12, Total: 0})
	a.Moved = map[wire.PoolID]wire.PoolID{11: 13}
	response, decided := a.Decide(windowRequest(1, 12, 11), &PendingRequest{MayWait: true})
	if want := (wire.Decision{Reason: wire.WrongWindow, Pool: 13}); !decided || response.Decisions[0] != want {
		t.Errorf("got %+v, %v; want %+v at once", response.Decisions, decided, want)
	}
	if a.Pools[1].Free != 1000 || a.Pools[11].Free != 100 {
		t.Errorf("units were taken: %+v, %+v", a.Pools[1], a.Pools[11])
	}
}

// All needs are granted together or none, up to as many as a message may have, and a refusal names the pool.
func TestNeedsOfAllLimitsAreOneDecision(t *testing.T) {
	t.Parallel()
	var pools []*Pool
	var ids []wire.PoolID
	for i := range int64(wire.MaxNeeds - 2) {
		pools = append(pools, &Pool{ID: wire.PoolID(10 + i), Total: 100, Central: true})
		ids = append(ids, wire.PoolID(10+i))
	}
	a := limitedAllocator(pools...)
	for number := range int64(10) {
		if response, _ := a.Decide(windowRequest(number+1, ids...), &PendingRequest{}); !response.Decisions[0].Granted {
			t.Fatalf("request %d is refused: %+v", number, response.Decisions)
		}
	}
	pools[5].Resize(200)
	if d := a.Judge(windowRequest(11, ids...).Needs[0]); d.Granted || d.Reason != wire.LimitReserved || d.Pool != ids[0] {
		t.Errorf("got %+v; want a refusal because of pool %d", d, ids[0])
	}
	if response, decided := a.Decide(windowRequest(11, ids...), &PendingRequest{MayWait: true}); decided {
		t.Errorf("got %+v; want it to wait for the units of running requests", response)
	}
	if a.Pools[1].Free != 900 || pools[5].Free != 100 {
		t.Errorf("the request took units: %+v, %+v", a.Pools[1], pools[5])
	}
}

func TestWindowThatHasEndedGivesNoAllotment(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		a := limitedAllocator(&Pool{ID: 11, Total: 1 << 30, EndMS: 5, Ended: ended})
		response, _ := a.Decide(windowRequest(1, 11), &PendingRequest{})
		if l := a.Leases[LeaseKey{11, 1}]; (l.Granted > 10) == ended || !response.Decisions[0].Granted {
			t.Errorf("ended %v: the lease is %+v", ended, l)
		}
		for _, s := range response.Leases {
			if s.Pool == 11 && s.EndMS != 5 {
				t.Errorf("the response does not say when the window ends: %+v", s)
			}
		}
	}
}

// A raise ends at its time and not a millisecond before, once, and what is held beyond the old amount is owed.
func TestRaiseEndsAtItsTime(t *testing.T) {
	t.Parallel()
	p := Pool{ID: 11, Total: 1000, Free: 1000, EndMS: 90_000}
	p.Raise(1500, 500, 60_000)
	p.Free, p.Settled = p.Free-1200, 300
	if p.idleUntilMS() != 60_000 || p.Free != 300 {
		t.Fatalf("raised: %+v", p)
	}
	before := p
	if p.EndRaise(59_999); p != before {
		t.Errorf("a millisecond before: %+v", p)
	}
	p.EndRaise(60_000)
	if p.Total != 1000 || p.Free != -200 || !p.Central || p.Generation != before.Generation+1 || p.idleUntilMS() != 90_000 {
		t.Errorf("at the time: %+v", p)
	}
	before = p
	if p.EndRaise(70_000); p != before {
		t.Errorf("later: %+v", p)
	}
}
