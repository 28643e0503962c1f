package holder

import (
	"fmt"
	"math"
	"testing"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// variant is an implementation of the protocol's steps: that of the packages, or
// one with a fault that the checks must find.
type variant struct {
	name   string
	decide func(b *allocator.Allocator, request *wire.LeaseRequest, pending *allocator.PendingRequest) (wire.LeaseResponse, bool)
	report func(b *allocator.Allocator, s wire.SessionID, reports []wire.LeaseReport)
	charge func(b *allocator.Allocator, s wire.SessionID, closed bool, pool wire.PoolID, cost int64)
	close  func(b *allocator.Allocator, s wire.SessionID)
	finish func(h *Holder, waiter *Waiter, cost int64) []*Waiter
}

var correct = variant{"correct", (*allocator.Allocator).Decide, (*allocator.Allocator).ApplyReports, (*allocator.Allocator).Charge, (*allocator.Allocator).CloseSession, (*Holder).Release}

// faulty returns the correct variant with a fault. A fault of reports applies to
// the reports in lease requests too.
func faulty(name string, put func(v *variant)) variant {
	v := correct
	v.name, v.report = name, nil
	put(&v)
	if report := v.report; report != nil {
		v.decide = func(b *allocator.Allocator, request *wire.LeaseRequest, pending *allocator.PendingRequest) (wire.LeaseResponse, bool) {
			report(b, request.Session, request.Reports)
			return b.Decide(request, pending)
		}
	} else {
		v.report = correct.report
	}
	return v
}

// uncover takes back the units that were granted for overruns since before.
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

// force grants the first request of a lease request that was refused because
// units are reserved.
func force(b *allocator.Allocator, request *wire.LeaseRequest, response *wire.LeaseResponse) {
	for i, d := range response.Decisions {
		if d.Reason == wire.BalanceReserved || d.Reason == wire.LimitReserved {
			for _, n := range request.Needs[i] {
				p := b.Pools[n.Pool]
				grantUnasked(b, p, request.Session, n.Amount)
				p.Free -= n.Amount
			}
			response.Decisions[i] = wire.Decision{Granted: true}
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
		v.report = func(b *allocator.Allocator, s wire.SessionID, reports []wire.LeaseReport) {
			before := overruns(b)
			b.ApplyReports(s, reports)
			uncover(b, s, before)
		}
	}),
	faulty("more is granted than is free", func(v *variant) {
		v.decide = func(b *allocator.Allocator, request *wire.LeaseRequest, pending *allocator.PendingRequest) (wire.LeaseResponse, bool) {
			response, decided := b.Decide(request, pending)
			force(b, request, &response)
			return response, decided
		}
	}),
	faulty("a request is refused with enough of everything", func(v *variant) {
		v.decide = func(b *allocator.Allocator, request *wire.LeaseRequest, pending *allocator.PendingRequest) (wire.LeaseResponse, bool) {
			response, decided := b.Decide(request, pending)
			if last := len(response.Decisions) - 1; last > 0 && response.Decisions[last].Granted {
				response.Decisions[last] = wire.Decision{Reason: wire.NoSlot}
				for _, n := range request.Needs[last] {
					b.Leases[allocator.LeaseKey{Pool: n.Pool, Session: request.Session}].Granted -= n.Amount
					b.Pools[n.Pool].Free += n.Amount
				}
			}
			return response, decided
		}
	}),
	faulty("a refusal does not wait for a recall", func(v *variant) {
		v.decide = func(b *allocator.Allocator, request *wire.LeaseRequest, pending *allocator.PendingRequest) (wire.LeaseResponse, bool) {
			for _, l := range b.Leases {
				l.RecalledGeneration = math.MaxInt64
			}
			return b.Decide(request, pending)
		}
	}),
	faulty("an answer to a recall counts although a grant is on its way", func(v *variant) {
		v.report = func(b *allocator.Allocator, s wire.SessionID, reports []wire.LeaseReport) {
			seen := make([]wire.LeaseReport, len(reports))
			for i, report := range reports {
				if l := b.Leases[allocator.LeaseKey{Pool: report.Pool, Session: s}]; l != nil {
					report.GrantedSeen = max(report.GrantedSeen, l.Granted)
				}
				seen[i] = report
			}
			b.ApplyReports(s, seen)
		}
	}),
	faulty("an answer to an older recall counts", func(v *variant) {
		v.report = func(b *allocator.Allocator, s wire.SessionID, reports []wire.LeaseReport) {
			current := make([]wire.LeaseReport, len(reports))
			for i, report := range reports {
				if p := b.Pools[report.Pool]; p != nil {
					report.Generation = p.Generation
				}
				current[i] = report
			}
			b.ApplyReports(s, current)
		}
	}),
	faulty("a repeated return counts again", func(v *variant) {
		v.report = func(b *allocator.Allocator, s wire.SessionID, reports []wire.LeaseReport) {
			for _, report := range reports {
				if l := b.Leases[allocator.LeaseKey{Pool: report.Pool, Session: s}]; l != nil && report.Returned > 0 {
					l.Returned = min(l.Returned, report.Returned-1)
				}
			}
			b.ApplyReports(s, reports)
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
	faulty("a closed session keeps its units", func(v *variant) {
		v.close = func(*allocator.Allocator, wire.SessionID) {}
	}),
	faulty("idle units of central pools are not returned", func(v *variant) {
		v.finish = func(h *Holder, waiter *Waiter, cost int64) []*Waiter {
			returned := map[wire.PoolID]int64{}
			for id, p := range h.pools {
				returned[id] = p.returned
			}
			admitted := h.Release(waiter, cost)
			for id, p := range h.pools {
				p.returned = returned[id]
			}
			return admitted
		}
	}),
}

// finding is the message of a failed check.
type finding string

// finder is a reporter that ends a world with its finding.
type finder struct{}

func (finder) Helper() {}

func (finder) Fatalf(format string, args ...any) { panic(finding(fmt.Sprintf(format, args...))) }

// search runs worlds of a variant until a check fails, and returns its message.
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

// The checks are worth nothing unless they find faults.
func TestChecksFindEveryFault(t *testing.T) {
	t.Parallel()
	for _, v := range faults {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			if search(v, 4000) == "" {
				t.Error("not found in 4000 worlds")
			}
		})
	}
	if found := search(correct, 20); found != "" {
		t.Errorf("found without a fault: %s", found)
	}
}
