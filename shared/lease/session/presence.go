package session

import "time"

// Presence tracks for how long a replica of the control plane has been present
// without an absence: a proxy's silence proves nothing while nobody could hear
// the proxy. Both clocks count, because a suspended machine hears nothing. It is
// not safe for concurrent use.
type Presence struct {
	// last is when the replica was last seen present, since when the presence began that lasts until then.
	last, since Instant
	// interrupted means that there was an absence; before the first one, since has no meaning.
	interrupted bool
}

// NewPresence returns the Presence of a replica that is present now.
func NewPresence(now Instant) Presence { return Presence{last: now} }

// Seen records that the replica is present. A time of more than gap since the
// last call was an absence.
func (p *Presence) Seen(now Instant, gap time.Duration) {
	if p.absent(now, gap) {
		p.since, p.interrupted = now, true
	}
	p.last = now
}

// For returns how long the replica has been present without an absence: zero
// during one, and Never if there was none since NewPresence.
func (p *Presence) For(now Instant, gap time.Duration) time.Duration {
	switch {
	case p.absent(now, gap):
		return 0
	case !p.interrupted:
		return Never
	}
	return now.Mono - p.since.Mono
}

func (p *Presence) absent(now Instant, gap time.Duration) bool {
	return !now.Before(p.last.Add(gap))
}
