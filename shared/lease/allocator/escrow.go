package allocator

import (
	"modelgateway/shared/wire"
	"time"
)

// maxCalm bounds the pools whose calm is remembered.
const maxTracked = 1 << 16

// Calm lets sessions hold idle units of pools that have had room for a while,
// as far as one control plane has seen. It is a matter of speed alone: before
// any refusal, idle units are recalled.
type EscrowPolicy struct {
	// After is how long a pool must have had room.
	HeadroomPeriod time.Duration
	since          map[wire.PoolID]time.Duration
}

// Ease relaxes the pools of an op that are calm. now is any clock that does not
// go back.
func (c *EscrowPolicy) Apply(b *Allocator, live int64, op *wire.LeaseRequest, now time.Duration) {
	for _, needs := range op.Needs {
		for _, n := range needs {
			if p := b.Pools[n.Pool]; p != nil && p.Central {
				c.applyTo(p, live, n.Amount, now)
			}
		}
	}
}

func (c *EscrowPolicy) applyTo(p *Pool, live, need int64, now time.Duration) {
	if !p.HasHeadroom(live, need) {
		delete(c.since, p.ID)
		return
	}
	since, known := c.since[p.ID]
	switch {
	case !known:
		c.startPeriod(p.ID, now)
	case now-since >= c.HeadroomPeriod:
		p.EnterEscrow()
		delete(c.since, p.ID)
	}
}

func (c *EscrowPolicy) startPeriod(id wire.PoolID, now time.Duration) {
	if c.since == nil || len(c.since) >= maxTracked {
		c.since = map[wire.PoolID]time.Duration{} // calm is seen again in a while
	}
	c.since[id] = now
}
