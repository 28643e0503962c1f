package holder

import (
	"cmp"
	"slices"

	"modelgateway/shared/wire"
)

// NextRequest returns the lease request to send, or nil: none is sent while one
// is outstanding, or if no request waits and no idle units are low. The caller repeats it until HandleResponse
// has its response.
//
// A lease request leaves the idle units of the session as they are: while the
// control plane does not respond, they admit the requests that they cover. It
// reports them instead, so that the response adds no more to them than is needed.
func (h *Holder) NextRequest() *wire.LeaseRequest {
	if h.request == nil {
		h.low = slices.DeleteFunc(h.low, func(l *lease) bool { return h.pools[l.pool] != l || l.central || l.over })
	}
	if h.request != nil || (len(h.queue) == 0 && len(h.low) == 0) {
		return nil
	}

	n := h.waitersOfNext()
	h.requested, h.queue = slices.Clone(h.queue[:n]), slices.Delete(h.queue, 0, n)
	h.lastNumber++

	h.request = &wire.LeaseRequest{
		V:       wire.Version,
		Session: h.session,
		BootID:  h.bootID,
		Account: h.account,
		Number:  h.lastNumber,
		Reports: h.requestReports(),
	}
	h.request.Needs = make([][]wire.Need, 0, len(h.requested))
	h.low = nil
	for _, w := range h.requested {
		h.request.Needs = append(h.request.Needs, w.needs)
	}

	for _, report := range h.request.Reports {
		l := h.pools[report.Pool]
		l.requested, l.inRequest = true, report.Returned
		h.changed(l)
	}

	return h.request
}

// waitersOfNext returns how many waiters the next lease request has: as many as may be, as long as the leases that they need can all
// be reported. With eight limits for each key, those of 25 keys cannot.
func (h *Holder) waitersOfNext() int {
	needed := map[wire.PoolID]bool{}
	for i, w := range h.queue {
		for _, n := range w.needs {
			needed[n.Pool] = true
		}
		if i == wire.MaxWaiters || len(needed) > wire.MaxReports {
			return i
		}
	}
	return len(h.queue)
}

// requestReports returns the reports of a lease request: those of the leases that
// it needs, then, up to wire.MaxReports, those with few idle units, and those that
// are due.
func (h *Holder) requestReports() []wire.LeaseReport {
	var needed []*lease
	known := map[*lease]bool{}
	for _, w := range h.requested {
		for _, n := range w.needs {
			if l := h.pools[n.Pool]; !known[l] {
				known[l] = true
				needed = append(needed, l)
			}
		}
	}

	for _, l := range h.low {
		if !known[l] && len(needed) < wire.MaxReports {
			known[l] = true
			needed = append(needed, l)
		}
	}

	list := reports(append(needed, h.firstDue(wire.MaxReports-len(needed), known)...))
	for i := range list {
		if l := h.pools[list[i].Pool]; !l.central && !l.over {
			list[i].Target = l.demand.ask()
		}
	}

	return list
}

// reports returns the reports of leases, in the order of their pools.
func reports(leases []*lease) []wire.LeaseReport {
	list := make([]wire.LeaseReport, len(leases))
	for i, l := range leases {
		list[i] = wire.LeaseReport{
			Pool:        l.pool,
			Generation:  l.generation,
			GrantedSeen: l.granted,
			Returned:    l.returned,
			Idle:        max(l.idle(), 0),
			Charged:     l.charged,
		}
	}
	slices.SortFunc(list, func(a, b wire.LeaseReport) int { return cmp.Compare(a.Pool, b.Pool) })
	return list
}

// HandleResponse applies the response to the outstanding lease request and
// returns the waiters that are decided: those of the request, and those behind
// them that the allotment covers. A response to another request has no effect,
// nor has one without decisions.
func (h *Holder) HandleResponse(r *wire.LeaseResponse) []*Waiter {
	if h.request == nil || (r.Status == wire.Done && (r.Number != h.request.Number || len(r.Decisions) != len(h.requested))) {
		return nil
	}

	switch r.Status {
	case wire.Fenced:
		waiters := h.AbortWaiters()
		h.endRequest()
		return waiters
	case wire.Done:
	default:
		return nil
	}

	h.confirm(h.request.Reports)
	for _, g := range r.Leases {
		if l := h.pools[g.Pool]; l != nil {
			h.update(l, g, r.Number)
		}
	}

	var decided []*Waiter
	for i, w := range h.requested {
		if !w.isWaiting() {
			continue // the units that were granted for it are idle now
		}
		h.stopWaiting(w)
		decided = append(decided, w)
		if !r.Decisions[i].Granted {
			w.state, w.decision = refused, r.Decisions[i]
			continue
		}
		w.state = granted
		h.running++
		for _, n := range w.needs { // endRequest calls changed: the units for the other waiters look idle until then
			h.pools[n.Pool].use(n)
		}
	}

	h.endRequest()
	return append(decided, h.admitCovered()...)
}

// update applies the control plane's state of a lease in the response to the
// lease request of that number.
func (h *Holder) update(l *lease, g wire.LeaseState, number int64) {
	if l.unknown {
		l.unknown, l.returned, l.confirmed, l.charged = false, g.Returned, g.Returned, g.Charged
	}
	l.reportDue = l.reportDue || (l.provisional && g.Granted > l.granted)
	l.granted, l.provisional = max(l.granted, g.Granted), false
	if g.Generation >= l.generation && (g.Central || number >= h.escrowFrom) {
		l.generation, l.central = g.Generation, g.Central
	}
	l.allotment = max(l.allotment, g.Allotment)
}

// admitCovered grants, in their order, the waiters that idle units cover now. For
// those of the outstanding lease request, the units of its response will be idle.
// Without it, each response under load would be followed by a lease request for
// the waiters, and a request could end without a decision although enough units
// had come back. It stops after so many that are not covered.
func (h *Holder) admitCovered() (admitted []*Waiter) {
	uncovered := 0
	admit := func(w *Waiter) bool {
		if !w.isWaiting() || uncovered >= wire.MaxWaiters {
			return false
		}
		if !h.covered(w.needs) {
			uncovered++
			return false
		}
		h.stopWaiting(w)
		h.grant(w)
		admitted = append(admitted, w)
		return true
	}

	for _, w := range h.requested {
		admit(w)
	}

	h.queue = slices.DeleteFunc(h.queue, admit)
	return admitted
}

// endRequest removes the outstanding lease request.
func (h *Holder) endRequest() {
	for _, report := range h.request.Reports {
		if l := h.pools[report.Pool]; l != nil {
			l.requested, l.inRequest = false, 0
			h.changed(l)
			l.demand.recordFilled(l.idle())
		}
	}
	h.request, h.requested = nil, nil
}
