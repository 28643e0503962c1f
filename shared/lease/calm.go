package lease

import "time"

// maxCalm bounds the pools whose calm is remembered.
const maxCalm = 1 << 16

// Calm lets sessions hold idle units of pools that have had room for a while,
// as far as one control plane has seen. It is a matter of speed alone: before
// any refusal, idle units are recalled.
type Calm struct {
	// After is how long a pool must have had room.
	After time.Duration
	since map[PoolID]time.Duration
}

// Ease relaxes the pools of an op that are calm. now is any clock that does not
// go back.
func (c *Calm) Ease(b *Book, live int64, op *Op, now time.Duration) {
	for _, needs := range op.Needs {
		for _, n := range needs {
			if p := b.Pools[n.Pool]; p != nil && p.Central {
				c.ease(p, live, n.Amount, now)
			}
		}
	}
}

func (c *Calm) ease(p *Pool, live, need int64, now time.Duration) {
	if !p.Roomy(live, need) {
		delete(c.since, p.ID)
		return
	}
	since, known := c.since[p.ID]
	switch {
	case !known:
		c.note(p.ID, now)
	case now-since >= c.After:
		p.Relax()
		delete(c.since, p.ID)
	}
}

func (c *Calm) note(id PoolID, now time.Duration) {
	if c.since == nil || len(c.since) >= maxCalm {
		c.since = map[PoolID]time.Duration{} // calm is seen again in a while
	}
	c.since[id] = now
}
