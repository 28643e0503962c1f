package allocator

import (
	"time"

	"modelgateway/shared/wire"
)

// maxTracked bounds the pools whose headroom is tracked.
const maxTracked = 1 << 16

// EscrowPolicy switches a pool to escrow mode after one control plane has seen
// headroom in it for a period. It affects speed only: idle units are recalled
// before any refusal.
type EscrowPolicy struct {
	// HeadroomPeriod is how long a pool must have had headroom.
	HeadroomPeriod time.Duration
	since          map[wire.PoolID]time.Duration
}

// Apply switches the pools of a lease request that have had headroom for long
// enough to escrow mode. live is the number of live sessions; now is the reading
// of any clock that does not go back.
func (e *EscrowPolicy) Apply(a *Allocator, live int64, request *wire.LeaseRequest, now time.Duration) {
	for _, needs := range request.Needs {
		for _, n := range needs {
			if p := a.Pools[n.Pool]; p != nil && p.Central {
				e.applyTo(p, live, n.Amount, now)
			}
		}
	}
}

func (e *EscrowPolicy) applyTo(p *Pool, live, need int64, now time.Duration) {
	if !p.HasHeadroom(live, need) {
		delete(e.since, p.ID)
		return
	}
	since, known := e.since[p.ID]
	switch {
	case !known:
		e.startPeriod(p.ID, now)
	case now-since >= e.HeadroomPeriod:
		p.EnterEscrow()
		delete(e.since, p.ID)
	}
}

func (e *EscrowPolicy) startPeriod(id wire.PoolID, now time.Duration) {
	if e.since == nil || len(e.since) >= maxTracked {
		e.since = map[wire.PoolID]time.Duration{} // the dropped pools start a new period
	}
	e.since[id] = now
}
