package lease

import (
	"fmt"
	"math"
	"testing"
)

// variant is how a world does the protocol's steps: as the package does, or
// with a fault that the checks must find.
type variant struct {
	name   string
	op     func(b *Book, op *Op, stay *Stay) (OpReply, bool)
	report func(b *Book, s SessionID, views []View)
	charge func(b *Book, s SessionID, closed bool, pool PoolID, cost int64)
	close  func(b *Book, s SessionID)
	finish func(h *Holder, t *Ticket, cost int64)
}

var correct = variant{"correct", (*Book).Op, (*Book).Report, (*Book).Charge, (*Book).Close, (*Holder).Finish}

// faulty is the correct variant with a fault put in. A fault of reports is one
// of those in ops too.
func faulty(name string, put func(v *variant)) variant {
	v := correct
	v.name, v.report = name, nil
	put(&v)
	if report := v.report; report != nil {
		v.op = func(b *Book, op *Op, stay *Stay) (OpReply, bool) {
			report(b, op.Session, op.Views)
			return b.Op(op, stay)
		}
	} else {
		v.report = correct.report
	}
	return v
}

// uncover takes back what cover has granted since the pools were as before.
func uncover(b *Book, s SessionID, before map[PoolID]int64) {
	for id, p := range b.Pools {
		if l := b.Leases[LeaseKey{id, s}]; l != nil {
			missing := p.Overrun - before[id]
			l.G, p.Free, p.Overrun = l.G-missing, p.Free+missing, p.Overrun-missing
		}
	}
}

func overruns(b *Book) map[PoolID]int64 {
	before := map[PoolID]int64{}
	for id, p := range b.Pools {
		before[id] = p.Overrun
	}
	return before
}

// force grants the first request of an op that was refused for what is held.
func force(b *Book, op *Op, reply *OpReply) {
	for i, d := range reply.Decisions {
		if d.Reason == BalanceHeld || d.Reason == LimitHeld {
			for _, n := range op.Needs[i] {
				p := b.Pools[n.Pool]
				b.lease(p, op.Session).G += n.Amount
				p.Free -= n.Amount
			}
			reply.Decisions[i] = Decision{Granted: true}
			return
		}
	}
}

var faults = []variant{
	faulty("a cost beyond the grants is not covered", func(v *variant) {
		v.charge = func(b *Book, s SessionID, closed bool, pool PoolID, cost int64) {
			before := overruns(b)
			b.Charge(s, closed, pool, cost)
			uncover(b, s, before)
		}
	}),
	faulty("a return beyond the grants is not covered", func(v *variant) {
		v.report = func(b *Book, s SessionID, views []View) {
			before := overruns(b)
			b.Report(s, views)
			uncover(b, s, before)
		}
	}),
	faulty("more is granted than is free", func(v *variant) {
		v.op = func(b *Book, op *Op, stay *Stay) (OpReply, bool) {
			reply, decided := b.Op(op, stay)
			force(b, op, &reply)
			return reply, decided
		}
	}),
	faulty("a request is refused with enough of everything", func(v *variant) {
		v.op = func(b *Book, op *Op, stay *Stay) (OpReply, bool) {
			reply, decided := b.Op(op, stay)
			if n := len(reply.Decisions); n > 1 && reply.Decisions[n-1].Granted {
				reply.Decisions[n-1] = Decision{Reason: NoSlot}
				for _, n := range op.Needs[n-1] {
					b.Leases[LeaseKey{n.Pool, op.Session}].G -= n.Amount
					b.Pools[n.Pool].Free += n.Amount
				}
			}
			return reply, decided
		}
	}),
	faulty("a refusal waits for no recall", func(v *variant) {
		v.op = func(b *Book, op *Op, stay *Stay) (OpReply, bool) {
			for _, l := range b.Leases {
				l.RecalledGen = math.MaxInt64
			}
			return b.Op(op, stay)
		}
	}),
	faulty("an answer to a recall counts although a grant is on its way", func(v *variant) {
		v.report = func(b *Book, s SessionID, views []View) {
			seen := make([]View, len(views))
			for i, view := range views {
				if l := b.Leases[LeaseKey{view.Pool, s}]; l != nil {
					view.GSeen = max(view.GSeen, l.G)
				}
				seen[i] = view
			}
			b.Report(s, seen)
		}
	}),
	faulty("an answer to an older recall counts", func(v *variant) {
		v.report = func(b *Book, s SessionID, views []View) {
			newer := make([]View, len(views))
			for i, view := range views {
				if p := b.Pools[view.Pool]; p != nil {
					view.Gen = p.Gen
				}
				newer[i] = view
			}
			b.Report(s, newer)
		}
	}),
	faulty("a return counts as often as it comes", func(v *variant) {
		v.report = func(b *Book, s SessionID, views []View) {
			for _, view := range views {
				if l := b.Leases[LeaseKey{view.Pool, s}]; l != nil && view.R > 0 {
					l.R = min(l.R, view.R-1)
				}
			}
			b.Report(s, views)
		}
	}),
	faulty("a cost is charged twice", func(v *variant) {
		v.charge = func(b *Book, s SessionID, closed bool, pool PoolID, cost int64) {
			b.Charge(s, closed, pool, cost)
			b.Charge(s, closed, pool, cost)
		}
	}),
	faulty("a cost beyond the grants is lost", func(v *variant) {
		v.charge = func(b *Book, s SessionID, closed bool, pool PoolID, cost int64) {
			if l := b.Leases[LeaseKey{pool, s}]; l != nil {
				cost = min(cost, l.Outstanding())
			}
			b.Charge(s, closed, pool, cost)
		}
	}),
	faulty("a closed session keeps what it holds", func(v *variant) {
		v.close = func(*Book, SessionID) {}
	}),
	faulty("idle units of central pools are kept", func(v *variant) {
		v.finish = func(h *Holder, t *Ticket, cost int64) {
			returned := map[PoolID]int64{}
			for id, p := range h.pools {
				returned[id] = p.r
			}
			h.Finish(t, cost)
			for id, p := range h.pools {
				p.r = returned[id]
			}
		}
	}),
}

// finding is what a world reports instead of failing a test.
type finding string

// finder is a reporter that ends a world with its finding.
type finder struct{}

func (finder) Helper() {}

func (finder) Fatalf(format string, args ...any) { panic(finding(fmt.Sprintf(format, args...))) }

// search plays worlds with a fault until one is found.
func search(v variant, seeds uint64) (found finding) {
	for seed := range seeds {
		func() {
			defer func() {
				switch r := recover().(type) {
				case nil:
				case finding:
					found = r
				default:
					panic(r)
				}
			}()
			newWorld(finder{}, v, seed).run()
		}()
		if found != "" {
			return found
		}
	}
	return ""
}

// TestFaultsAreFound: a checker that finds nothing proves nothing.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, v := range faults {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			if search(v, 1000) == "" {
				t.Error("not found in 1000 worlds")
			}
		})
	}
	if found := search(correct, 20); found != "" {
		t.Errorf("found without a fault: %s", found)
	}
}
