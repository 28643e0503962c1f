package holder

import (
	"fmt"
	"math"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
	"testing"
)

// variant is how a world does the protocol's steps: as the package does, or
// with a fault that the checks must find.
type variant struct {
	name   string
	op     func(b *allocator.Allocator, op *wire.LeaseRequest, stay *allocator.PendingRequest) (wire.LeaseResponse, bool)
	report func(b *allocator.Allocator, s wire.SessionID, views []wire.LeaseReport)
	charge func(b *allocator.Allocator, s wire.SessionID, closed bool, pool wire.PoolID, cost int64)
	close  func(b *allocator.Allocator, s wire.SessionID)
	finish func(h *Holder, t *Waiter, cost int64)
}

var correct = variant{"correct", (*allocator.Allocator).Decide, (*allocator.Allocator).ApplyReports, (*allocator.Allocator).Charge, (*allocator.Allocator).CloseSession, (*Holder).Release}

// faulty is the correct variant with a fault put in. A fault of reports is one
// of those in ops too.
func faulty(name string, put func(v *variant)) variant {
	v := correct
	v.name, v.report = name, nil
	put(&v)
	if report := v.report; report != nil {
		v.op = func(b *allocator.Allocator, op *wire.LeaseRequest, stay *allocator.PendingRequest) (wire.LeaseResponse, bool) {
			report(b, op.Session, op.Reports)
			return b.Decide(op, stay)
		}
	} else {
		v.report = correct.report
	}
	return v
}

// uncover takes back what cover has granted since the pools were as before.
func uncover(b *allocator.Allocator, s wire.SessionID, before map[wire.PoolID]int64) {
	for id, p := range b.Pools {
		if l := b.Leases[allocator.LeaseKey{Pool: id, Session: s}]; l != nil {
			missing := p.Overrun - before[id]
			l.Granted, p.Free, p.Overrun = l.Granted-missing, p.Free+missing, p.Overrun-missing
		}
	}
}

func overruns(b *allocator.Allocator) map[wire.PoolID]int64 {
	before := map[wire.PoolID]int64{}
	for id, p := range b.Pools {
		before[id] = p.Overrun
	}
	return before
}

// force grants the first request of an op that was refused for what is held.
func force(b *allocator.Allocator, op *wire.LeaseRequest, reply *wire.LeaseResponse) {
	for i, d := range reply.Decisions {
		if d.Reason == wire.BalanceReserved || d.Reason == wire.KeyLimitReserved {
			for _, n := range op.Needs[i] {
				p := b.Pools[n.Pool]
				grantUnasked(b, p, op.Session, n.Amount)
				p.Free -= n.Amount
			}
			reply.Decisions[i] = wire.Decision{Granted: true}
			return
		}
	}
}

// grantUnasked grants units to a session, whether or not the pool has them.
func grantUnasked(b *allocator.Allocator, p *allocator.Pool, session wire.SessionID, amount int64) {
	key := allocator.LeaseKey{Pool: p.ID, Session: session}
	l := b.Leases[key]
	if l == nil {
		l = &allocator.Lease{RecalledGeneration: p.Generation}
		b.Leases[key] = l
	}
	l.Granted += amount
}

var faults = []variant{
	faulty("a cost beyond the grants is not covered", func(v *variant) {
		v.charge = func(b *allocator.Allocator, s wire.SessionID, closed bool, pool wire.PoolID, cost int64) {
			before := overruns(b)
			b.Charge(s, closed, pool, cost)
			uncover(b, s, before)
		}
	}),
	faulty("a return beyond the grants is not covered", func(v *variant) {
		v.report = func(b *allocator.Allocator, s wire.SessionID, views []wire.LeaseReport) {
			before := overruns(b)
			b.ApplyReports(s, views)
			uncover(b, s, before)
		}
	}),
	faulty("more is granted than is free", func(v *variant) {
		v.op = func(b *allocator.Allocator, op *wire.LeaseRequest, stay *allocator.PendingRequest) (wire.LeaseResponse, bool) {
			reply, decided := b.Decide(op, stay)
			force(b, op, &reply)
			return reply, decided
		}
	}),
	faulty("a request is refused with enough of everything", func(v *variant) {
		v.op = func(b *allocator.Allocator, op *wire.LeaseRequest, stay *allocator.PendingRequest) (wire.LeaseResponse, bool) {
			reply, decided := b.Decide(op, stay)
			if n := len(reply.Decisions); n > 1 && reply.Decisions[n-1].Granted {
				reply.Decisions[n-1] = wire.Decision{Reason: wire.NoSlot}
				for _, n := range op.Needs[n-1] {
					b.Leases[allocator.LeaseKey{Pool: n.Pool, Session: op.Session}].Granted -= n.Amount
					b.Pools[n.Pool].Free += n.Amount
				}
			}
			return reply, decided
		}
	}),
	faulty("a refusal waits for no recall", func(v *variant) {
		v.op = func(b *allocator.Allocator, op *wire.LeaseRequest, stay *allocator.PendingRequest) (wire.LeaseResponse, bool) {
			for _, l := range b.Leases {
				l.RecalledGeneration = math.MaxInt64
			}
			return b.Decide(op, stay)
		}
	}),
	faulty("an answer to a recall counts although a grant is on its way", func(v *variant) {
		v.report = func(b *allocator.Allocator, s wire.SessionID, views []wire.LeaseReport) {
			seen := make([]wire.LeaseReport, len(views))
			for i, view := range views {
				if l := b.Leases[allocator.LeaseKey{Pool: view.Pool, Session: s}]; l != nil {
					view.GrantedSeen = max(view.GrantedSeen, l.Granted)
				}
				seen[i] = view
			}
			b.ApplyReports(s, seen)
		}
	}),
	faulty("an answer to an older recall counts", func(v *variant) {
		v.report = func(b *allocator.Allocator, s wire.SessionID, views []wire.LeaseReport) {
			newer := make([]wire.LeaseReport, len(views))
			for i, view := range views {
				if p := b.Pools[view.Pool]; p != nil {
					view.Generation = p.Generation
				}
				newer[i] = view
			}
			b.ApplyReports(s, newer)
		}
	}),
	faulty("a return counts as often as it comes", func(v *variant) {
		v.report = func(b *allocator.Allocator, s wire.SessionID, views []wire.LeaseReport) {
			for _, view := range views {
				if l := b.Leases[allocator.LeaseKey{Pool: view.Pool, Session: s}]; l != nil && view.Returned > 0 {
					l.Returned = min(l.Returned, view.Returned-1)
				}
			}
			b.ApplyReports(s, views)
		}
	}),
	faulty("a cost is charged twice", func(v *variant) {
		v.charge = func(b *allocator.Allocator, s wire.SessionID, closed bool, pool wire.PoolID, cost int64) {
			b.Charge(s, closed, pool, cost)
			b.Charge(s, closed, pool, cost)
		}
	}),
	faulty("a cost beyond the grants is lost", func(v *variant) {
		v.charge = func(b *allocator.Allocator, s wire.SessionID, closed bool, pool wire.PoolID, cost int64) {
			if l := b.Leases[allocator.LeaseKey{Pool: pool, Session: s}]; l != nil {
				cost = min(cost, l.Outstanding())
			}
			b.Charge(s, closed, pool, cost)
		}
	}),
	faulty("a closed session keeps what it holds", func(v *variant) {
		v.close = func(*allocator.Allocator, wire.SessionID) {}
	}),
	faulty("idle units of central pools are kept", func(v *variant) {
		v.finish = func(h *Holder, t *Waiter, cost int64) {
			returned := map[wire.PoolID]int64{}
			for id, p := range h.pools {
				returned[id] = p.returned
			}
			h.Release(t, cost)
			for id, p := range h.pools {
				p.returned = returned[id]
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
