package sim

import (
	"maps"
	"slices"
	"time"

	"modelgateway/shared/apikey"
	"modelgateway/shared/event"
	"modelgateway/shared/lease"
)

// Mutation is a fault put into the protocol on purpose: a checker that finds
// nothing proves nothing.
type Mutation struct {
	Name string
	// Budget is how many seeds it may take to find it.
	Budget uint64
	put    func(r *Rules)
}

// Rules are the correct ones with the fault.
func (m Mutation) Rules() *Rules {
	r := Correct()
	m.put(r)
	return r
}

// Find plays seeds until one breaks an invariant. It returns nil if none does.
func (m Mutation) Find(budget uint64) (found *Result, played uint64) {
	Search(1, budget, m.Rules, func(r Result) bool {
		played++
		if r.Violation != "" {
			found = &r
		}
		return found == nil
	})
	return found, played
}

// Mutations lists them all.
func Mutations() []Mutation {
	return append(append(leaseFaults(), sessionFaults()...), append(usageFaults(), lossFaults()...)...)
}

// reporting puts a fault into how reports are taken in, of returns and of ops.
func reporting(change func(b *lease.Book, s lease.SessionID, v lease.View) lease.View) func(r *Rules) {
	return func(r *Rules) {
		views := func(d *lease.Docket, s lease.SessionID, views []lease.View) []lease.View {
			changed := make([]lease.View, len(views))
			for i, v := range views {
				changed[i] = change(d.Book, s, v)
			}
			return changed
		}
		r.Return = func(d *lease.Docket, ret *lease.Return) lease.Status {
			copied := *ret
			copied.Views = views(d, ret.Session, ret.Views)
			return d.Return(&copied)
		}
		r.Op = func(d *lease.Docket, op *lease.Op, stay *lease.Stay, ease func()) (*lease.OpReply, bool) {
			copied := *op
			copied.Views = views(d, op.Session, op.Views)
			return d.Op(&copied, stay, ease)
		}
	}
}

// uncovered undoes what do has granted afterwards.
func uncovered(b *lease.Book, do func()) {
	type state struct{ overrun int64 }
	before := map[lease.PoolID]state{}
	granted := map[lease.LeaseKey]int64{}
	for id, p := range b.Pools {
		before[id] = state{p.Overrun}
	}
	for key, l := range b.Leases {
		granted[key] = l.G
	}
	do()
	for key, l := range b.Leases {
		if p := b.Pools[key.Pool]; p.Overrun > before[key.Pool].overrun && l.G > granted[key] {
			missing := min(l.G-granted[key], p.Overrun-before[key.Pool].overrun)
			l.G, p.Free, p.Overrun = l.G-missing, p.Free+missing, p.Overrun-missing
		}
	}
}

// noBarrier has every recall count as answered.
func noBarrier(d *lease.Docket, op *lease.Op, stay *lease.Stay, ease func()) (*lease.OpReply, bool) {
	for key, l := range d.Book.Leases {
		if p := d.Book.Pools[key.Pool]; p != nil {
			l.RecalledGen = max(l.RecalledGen, p.Gen+1)
		}
	}
	clear(d.Book.Holders)
	return d.Op(op, stay, ease)
}

// unconfirmed has every session that has answered a recall count as having
// answered the next one too.
func unconfirmed(d *lease.Docket, op *lease.Op, stay *lease.Stay, ease func()) (*lease.OpReply, bool) {
	next := func(gen, now int64) int64 {
		if gen == now {
			gen++
		}
		return gen
	}
	for key, l := range d.Book.Leases {
		if p := d.Book.Pools[key.Pool]; p != nil && p.Central {
			l.RecalledGen = next(l.RecalledGen, p.Gen)
		}
	}
	for id, holders := range d.Book.Holders {
		for i := range holders {
			holders[i].RecalledGen = next(holders[i].RecalledGen, d.Book.Pools[id].Gen)
		}
	}
	return d.Op(op, stay, ease)
}

// prefix stops at the first request that does not fit.
func prefix(d *lease.Docket, op *lease.Op, stay *lease.Stay, ease func()) (*lease.OpReply, bool) {
	reply, recalling := d.Op(op, stay, ease)
	if reply == nil || reply.Status != lease.Done {
		return reply, recalling
	}
	var first *lease.Decision
	for i := range reply.Decisions {
		switch {
		case first == nil && !reply.Decisions[i].Granted:
			first = &reply.Decisions[i]
		case first != nil && reply.Decisions[i].Granted:
			reply.Decisions[i] = *first
			for _, n := range op.Needs[i] {
				d.Book.Pools[n.Pool].Free += n.Amount
				d.Book.Leases[lease.LeaseKey{Pool: n.Pool, Session: op.Session}].G -= n.Amount
			}
		}
	}
	return reply, recalling
}

// returnedTwice adds to what is returned with each return that comes.
func returnedTwice(d *lease.Docket, ret *lease.Return) lease.Status {
	for _, v := range ret.Views {
		if p, l := d.Book.Pools[v.Pool], d.Book.Leases[lease.LeaseKey{Pool: v.Pool, Session: ret.Session}]; p != nil && l != nil && v.R > 0 && v.R <= l.R {
			p.Free++
			l.R++
		}
	}
	return d.Return(ret)
}

func leaseFaults() []Mutation {
	return []Mutation{
		{"an answer to a recall counts although a grant is on its way (noGSeen)", 6000, reporting(func(b *lease.Book, s lease.SessionID, v lease.View) lease.View {
			if l := b.Leases[lease.LeaseKey{Pool: v.Pool, Session: s}]; l != nil {
				v.GSeen = max(v.GSeen, l.G)
			}
			return v
		})},
		{"an answer to an older recall counts (old generation)", 1500, reporting(func(b *lease.Book, _ lease.SessionID, v lease.View) lease.View {
			if p := b.Pools[v.Pool]; p != nil {
				v.Gen = max(v.Gen, p.Gen)
			}
			return v
		})},
		{"a refusal waits for no recall (no402Barrier)", 60, func(r *Rules) { r.Op = noBarrier }},
		{"a refusal does not wait for what is on its way back", 60, func(r *Rules) { r.Op = unconfirmed }},
		{"a return counts as often as it comes", 20, func(r *Rules) { r.Return = returnedTwice }},
		{"a cost is charged twice", 20, func(r *Rules) {
			r.Post = func(s *lease.Settlement, b *lease.Book, t map[lease.SessionID]*lease.Tenure) {
				s.Post(b, t)
				s.Post(b, t)
			}
		}},
		{"a cost beyond the grants is not covered (overrun in settle)", 20, func(r *Rules) {
			r.Post = func(s *lease.Settlement, b *lease.Book, t map[lease.SessionID]*lease.Tenure) {
				uncovered(b, func() { s.Post(b, t) })
			}
		}},
		{"a return beyond the grants is not covered (overrun in return)", 30, func(r *Rules) {
			r.Return = func(d *lease.Docket, ret *lease.Return) (status lease.Status) {
				uncovered(d.Book, func() { status = d.Return(ret) })
				return status
			}
		}},
		{"requests behind the first misfit are refused (prefix instead of bitmap)", 20, func(r *Rules) { r.Op = prefix }},
		{"the result of an op is not stored", 30, func(r *Rules) {
			r.Op = func(d *lease.Docket, op *lease.Op, stay *lease.Stay, ease func()) (*lease.OpReply, bool) {
				delete(d.Results, lease.OpKey{Session: op.Session, Account: op.Account})
				return d.Op(op, stay, ease)
			}
		}},
		{"a closed session keeps what it holds", 20, func(r *Rules) { r.Free = func(*lease.Book, lease.SessionID) {} }},
		{"what is granted is not taken from what is free", 20, func(r *Rules) {
			r.Op = func(d *lease.Docket, op *lease.Op, stay *lease.Stay, ease func()) (*lease.OpReply, bool) {
				reply, recalling := d.Op(op, stay, ease)
				if reply != nil && reply.Status == lease.Done && len(reply.Decisions) > 0 && reply.Decisions[0].Granted {
					d.Book.Pools[op.Needs[0][0].Pool].Free++
				}
				return reply, recalling
			}
		}},
		{"more is believed than was granted", 10, func(r *Rules) {
			r.Answer = func(h *lease.Holder, reply *lease.OpReply) []*lease.Ticket {
				for i := range reply.Grants {
					reply.Grants[i].G++ // more than was granted is believed
				}
				return h.Answer(reply)
			}
		}},
		{"what somebody waits for is decided like what is asked for ahead", 60, func(r *Rules) {
			r.Op = func(d *lease.Docket, op *lease.Op, stay *lease.Stay, ease func()) (*lease.OpReply, bool) {
				copied := *op
				copied.Ahead = true
				return d.Op(&copied, stay, ease)
			}
		}},
		{"a recall is not heeded", 400, func(r *Rules) {
			r.Recall = func(h *lease.Holder, pool lease.PoolID, gen int64) {
				at := h.Position(pool)
				if at.Central {
					h.Recall(pool, gen)
				}
			}
			r.Op = func(d *lease.Docket, op *lease.Op, stay *lease.Stay, ease func()) (*lease.OpReply, bool) {
				for i := range op.Views {
					op.Views[i].Gen = max(op.Views[i].Gen, 1<<30)
				}
				return d.Op(op, stay, ease)
			}
		}},
	}
}

func sessionFaults() []Mutation {
	return []Mutation{
		{"a session is extended before its changes are applied", 4000, func(r *Rules) {
			r.In = "stalls"
			r.Renewed = func(p *proxy, a *lease.Renewed, extend func()) {
				extend()
				copied := *a
				p.after(p.w.between(0, 100*time.Millisecond), func() { p.apply(&copied) })
			}
		}},
		{"the deadline counts from the reply instead of the request", 4000, func(r *Rules) {
			r.In = "stalls"
			r.Extend = func(a *lease.Renewed, _, received lease.Instant) (lease.Instant, bool) { return a.Deadline(received) }
			r.Opened = func(a *lease.Registered, _, received lease.Instant) lease.Instant { return a.Deadline(received) }
		}},
		{"the boot-time clock is not looked at", 600, func(r *Rules) {
			r.Before = func(now, deadline lease.Instant) bool { return now.Mono < deadline.Mono }
		}},
		{"nothing is asked again after the wait", 90, func(r *Rules) {
			r.Complete = func(lease.Entry) lease.Outcome { return lease.Admitted }
		}},
		{"the key is not asked again after the wait", 90, func(r *Rules) {
			r.Complete = func(e lease.Entry) lease.Outcome {
				if !e.SessionValid() {
					return lease.NoSession
				}
				return lease.Admitted
			}
		}},
		{"a record is used whatever revision it was read at (no floor)", 90, func(r *Rules) {
			r.Current = func(k *lease.Knowledge, reading lease.Reading) bool {
				reading.Rev, reading.Session = 1<<60, k.Session()
				return k.Current(reading)
			}
		}},
		{"revoked keys are forgotten", 60, func(r *Rules) {
			r.Current = func(_ *lease.Knowledge, _ lease.Reading) bool { return true }
		}},
		{"a change is acknowledged although one before it is missing", 8000, func(r *Rules) {
			r.In = "stalls"
			r.Pushed = func(c *lease.Changes, change lease.Change, apply func(lease.Change)) (lease.Ack, bool) {
				change.Prev = 0
				return c.Pushed(change, apply)
			}
		}},
		{"an acknowledgement of anything confirms", 60, func(r *Rules) {
			r.Ack = func(b *lease.Barrier, a lease.Ack) {
				a.Rev = 1 << 60
				b.Ack(a)
			}
			r.Pushed = func(c *lease.Changes, _ lease.Change, _ func(lease.Change)) (lease.Ack, bool) {
				return lease.Ack{Session: c.Session(), Rev: c.Applied()}, true
			}
		}},
		{"a revocation waits for no session", 150, func(r *Rules) {
			r.Down = func(*lease.Barrier, time.Duration) bool { return true }
		}},
		{"a session counts as over before it is", 300, func(r *Rules) {
			r.Barrier = func(rev int64, pending []lease.Pending, _, now time.Duration) *lease.Barrier {
				return lease.NewBarrier(rev, pending, -sessionValid/3, now)
			}
		}},
		{"a zombie is renewed and served (not fenced)", 20, func(r *Rules) {
			r.Renew = func(t *lease.Tenure, a *lease.Renew, valid time.Duration) bool {
				if t.State == 0 {
					return false
				}
				t.Left, t.AppliedRev = valid, max(t.AppliedRev, a.AppliedRev)
				return true
			}
		}},
		{"a session is fenced before it must take itself for over", 150, func(r *Rules) {
			r.Fence = func(t *lease.Tenure, _ time.Duration) bool { return t.Fence(-sessionValid / 2) }
		}},
		{"a silent session is closed while requests of it run", 20, func(r *Rules) {
			r.Outlived = func(t *lease.Tenure, _ time.Duration) bool { return t.Outlived(0) }
		}},
		{"a session is closed before its events are settled", 20, func(r *Rules) {
			r.Close = func(t *lease.Tenure, c *lease.CloseSession, _ int64) bool { return t.Close(c, c.FinalCount) }
		}},
	}
}

func usageFaults() []Mutation {
	return []Mutation{
		{"no place is reserved in the spool", 90, func(r *Rules) {
			r.Begin = func(e lease.Entry) (lease.Outcome, error) {
				if !e.SessionValid() {
					return lease.NoSession, nil
				}
				return lease.Admitted, nil
			}
		}},
		{"an event is forgotten when the stream has taken it (ack trusted)", 60, func(r *Rules) {
			r.Stored = func(u *lease.Unsettled[*usage], batch []*usage) {
				for _, e := range batch {
					u.Settle(event.Settled{Session: int64(e.Session), Beyond: [][2]int64{{e.n, e.n}}}, func(*usage) {})
				}
			}
		}},
		{"a settled request is settled again (ids not deduped)", 20, func(r *Rules) {
			r.Took = func(s *lease.Settlement, _ map[[16]byte]bool) []int {
				all := map[[16]byte]bool{}
				for _, c := range s.Charges {
					all[c.Request] = true
				}
				return s.Took(all)
			}
		}},
		{"an altered duplicate passes for a repetition", 90, func(r *Rules) {
			r.Compare = func(s *lease.Settlement, settled map[[16]byte][32]byte) {
				for _, c := range s.Charges {
					settled[c.Request] = c.Fingerprint
				}
				for _, i := range s.Doubtful() {
					s.Verdicts[i] = lease.Repeated
				}
			}
		}},
		{"charges of closed sessions are booked on their leases", 20, func(r *Rules) {
			r.Post = func(s *lease.Settlement, b *lease.Book, t map[lease.SessionID]*lease.Tenure) {
				for _, tenure := range t {
					tenure.State = lease.TenureFenced
				}
				s.Post(b, t)
				for key, l := range b.Leases { // and what is over is held for ever
					if l.Outstanding() == 0 && key.Session%2 == 0 {
						l.G++
						b.Pools[key.Pool].Free--
					}
				}
			}
		}},
	}
}

func lossFaults() []Mutation {
	return []Mutation{
		{"a loss of commits is not noticed", 90, func(r *Rules) {
			r.Look = func(a *lease.Attendant, roll lease.Roll, f lease.Finding, now time.Duration) (lease.Roll, lease.Advice) {
				f.Mark, f.Missing = roll.Mark.Merge(f.Mark), nil
				return a.Look(roll, f, now)
			}
		}},
		{"nobody asks for the commits that he has answered", 1000, func(r *Rules) {
			r.Asks = func(a *lease.Attendant, roll lease.Roll) []lease.Witness {
				return slices.DeleteFunc(a.Asks(roll), func(w lease.Witness) bool { return w.Replica == a.ID() && w != roll.Witness })
			}
		}},
		{"Postgres is used before the others have asked for their commits", 600, func(r *Rules) {
			r.Look = func(a *lease.Attendant, roll lease.Roll, f lease.Finding, now time.Duration) (lease.Roll, lease.Advice) {
				maps.DeleteFunc(roll.Present, func(_ string, p lease.Presence) bool { return p.Life != f.Life })
				return a.Look(roll, f, now)
			}
		}},
		{"who is silent is struck off, and commits go on", 1500, func(r *Rules) { r.Fences = false }},
		{"who is struck off leaves no witness", 600, func(r *Rules) {
			r.Stay = func(a *lease.Attendant, roll lease.Roll, f lease.Finding, beat lease.Commit, fenced []string) (lease.Roll, bool) {
				next, ok := a.Stay(roll, f, beat, fenced)
				if len(fenced) > 0 {
					next.Witness = roll.Witness
				}
				return next, ok
			}
		}},
		{"ids go on where the copy left off", 90, func(r *Rules) {
			r.Next = func(m, now lease.Mark) lease.Mark {
				now.Epoch = max(m.Epoch, now.Epoch) + 1
				return now
			}
		}},
		{"totals that Postgres has lost are not merged by the greater one", 250, reporting(func(b *lease.Book, s lease.SessionID, v lease.View) lease.View {
			l := b.Leases[lease.LeaseKey{Pool: v.Pool, Session: s}]
			if l == nil {
				v.GSeen = 0
			} else {
				v.GSeen = min(v.GSeen, l.G)
			}
			return v
		})},
		{"revocations are not kept outside of Postgres", 300, func(r *Rules) { r.Remembers = false }},
		{"a lost revocation is not made again", 300, func(r *Rules) { r.Revoke = func(*database, string, apikey.Hash) {} }},
		{"a change waits for no session from before the loss", 1500, func(r *Rules) {
			r.In = "stalls"
			r.Unknown = func(_, _, _ time.Duration) []lease.Pending { return nil }
		}},
	}
}
