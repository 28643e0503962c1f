// Package holder implements a proxy's side of the leases of one account in one
// session: it admits requests from idle units, queues the others, and composes
// lease requests and returns. It has no lock, clock or I/O of its own.
package holder

import (
	"slices"

	"modelgateway/shared/wire"
)

// maxReports bounds the lease reports of one message, beside those that a lease
// request needs. The others are in the next Return.
const maxReports = 200

// maxWaiters bounds the waiters of one lease request.
const maxWaiters = 64

// Waiter is one request in a Holder: it waits, and is then granted, refused or
// aborted. Its owner calls Release once if it was granted, or Cancel to stop
// waiting.
type Waiter struct {
	needs    []wire.Need
	state    waiterState
	decision wire.Decision
}

type waiterState uint8

const (
	waiting waiterState = iota
	cancelled
	granted
	refused
	aborted
	finished
)

// isWaiting reports whether the request still waits for the decision.
func (w *Waiter) isWaiting() bool { return w.state == waiting }

// Granted reports whether the request may run.
func (w *Waiter) Granted() bool { return w.state == granted }

// Refused reports whether the request was refused; Decision says why.
func (w *Waiter) Refused() bool { return w.state == refused }

// Aborted reports whether the session ended before a decision.
func (w *Waiter) Aborted() bool { return w.state == aborted }

// Decision returns the decision of the control plane, once there is one.
func (w *Waiter) Decision() wire.Decision { return w.decision }

// lease is the proxy's side of one lease.
type lease struct {
	kind       wire.PoolKind
	generation int64
	central    bool
	// granted is the greatest granted total that was read, returned the total returned, charged the costs of finished
	// requests, running the units of unfinished ones.
	granted, returned, charged, running int64
	// confirmed is the returned total that the control plane is known to have. reportDue makes the holder send a Return
	// even if no units are returned, because the control plane waits for one.
	confirmed int64
	reportDue bool
	// inRequest is the returned total in the outstanding lease request; zero without one.
	inRequest int64
	// provisional means that a Return answered a recall while a lease request was outstanding: the answer does not count
	// if the response to that request grants units.
	provisional bool
}

// unreported reports whether the next Return must include the lease.
func (l *lease) unreported() bool { return l.reportDue || l.returned > max(l.confirmed, l.inRequest) }

func (l *lease) idle() int64 { return l.granted - l.returned - l.charged - l.running }

// Holder is the proxy's side of the protocol for one account in one session. It
// is not safe for concurrent use: the caller holds a lock and sends the messages.
// A Holder is kept as long as its session, because its totals must never
// decrease.
type Holder struct {
	session wire.SessionID
	bootID  string
	account string
	pools   map[wire.PoolID]*lease
	queue   []*Waiter
	// request is the outstanding lease request, requested has its waiters; ret is the outstanding Return.
	request    *wire.LeaseRequest
	requested  []*Waiter
	ret        *wire.Return
	lastNumber int64
	// escrowFrom is the number of the first lease request whose response may switch a pool to escrow mode.
	escrowFrom int64
	running    int
}

// NewHolder returns the Holder of an account in a session.
func NewHolder(session wire.SessionID, boot, account string) *Holder {
	return &Holder{session: session, bootID: boot, account: account, pools: map[wire.PoolID]*lease{}}
}

func (h *Holder) lease(n wire.Need) *lease {
	l := h.pools[n.Pool]
	if l == nil {
		l = &lease{kind: n.Kind, generation: 1, central: true}
		h.pools[n.Pool] = l
	}
	return l
}

// Running returns the number of granted requests that have not finished.
func (h *Holder) Running() int { return h.running }

// Reserve reserves the needs of one request. The waiter is granted at once if
// every pool has enough idle units and no request waits; otherwise it queues.
func (h *Holder) Reserve(needs []wire.Need) *Waiter {
	w := &Waiter{needs: needs}
	covered := h.covered(needs)
	if covered && len(h.queue) == 0 && !h.requestHasWaiters() {
		h.grant(w)
		return w
	}
	h.queue = append(h.queue, w)
	return w
}

// requestHasWaiters reports whether the outstanding lease request has waiters:
// no request is admitted before them.
func (h *Holder) requestHasWaiters() bool {
	return slices.ContainsFunc(h.requested, (*Waiter).isWaiting)
}

// covered reports whether every pool is in escrow mode and has enough idle
// units.
func (h *Holder) covered(needs []wire.Need) bool {
	all := true
	for _, n := range needs {
		l := h.lease(n)
		all = all && !l.central && l.idle() >= n.Amount
	}
	return all
}

func (h *Holder) grant(w *Waiter) {
	for _, n := range w.needs {
		h.lease(n).running += n.Amount
	}
	w.state = granted
	h.running++
}

// NextRequest returns the lease request to send, or nil: none is sent while one
// is outstanding or no request waits. The caller repeats it until HandleResponse
// has its response.
//
// A lease request returns the idle units of every pool, and its response grants
// the needed ones again. Otherwise, if one pool runs short again and again, each
// lease request would add an allotment of the other pools to their idle units.
func (h *Holder) NextRequest() *wire.LeaseRequest {
	if h.request != nil || len(h.queue) == 0 {
		return nil
	}
	n := min(len(h.queue), maxWaiters)
	h.requested, h.queue = slices.Clone(h.queue[:n]), slices.Delete(h.queue, 0, n)
	h.ReturnIdle()
	h.lastNumber++
	h.request = &wire.LeaseRequest{V: wire.Version, Session: h.session, BootID: h.bootID, Account: h.account, Number: h.lastNumber, Reports: h.requestReports()}
	for _, w := range h.requested {
		h.request.Needs = append(h.request.Needs, w.needs)
	}
	for _, report := range h.request.Reports {
		h.pools[report.Pool].inRequest = report.Returned
	}
	return h.request
}

// requestReports returns the reports of a lease request: those of the leases that
// it needs, and then, up to maxReports, those of leases that running requests hold
// or whose next report is due. An account may use very many key limits in a
// session, so the other leases are left out.
func (h *Holder) requestReports() []wire.LeaseReport {
	needed := map[*lease]bool{}
	for _, w := range h.requested {
		for _, n := range w.needs {
			needed[h.pools[n.Pool]] = true
		}
	}
	reports := h.reports(func(l *lease) bool { return needed[l] })
	others := h.reports(func(l *lease) bool { return !needed[l] && (l.unreported() || l.running > 0) })
	return append(reports, others[:min(len(others), max(maxReports-len(reports), 0))]...)
}

func (h *Holder) reports(want func(*lease) bool) []wire.LeaseReport {
	var reports []wire.LeaseReport
	for id, l := range h.pools {
		if want(l) {
			reports = append(reports, wire.LeaseReport{Pool: id, Generation: l.generation, GrantedSeen: l.granted, Returned: l.returned})
		}
	}
	slices.SortFunc(reports, func(a, b wire.LeaseReport) int { return int(a.Pool - b.Pool) })
	return reports
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
			l.reportDue = l.reportDue || (l.provisional && g.Granted > l.granted)
			l.granted, l.provisional = max(l.granted, g.Granted), false
			if g.Generation >= l.generation && (g.Central || r.Number >= h.escrowFrom) {
				l.generation, l.central = g.Generation, g.Central
			}
		}
	}
	var decided []*Waiter
	for i, w := range h.requested {
		if !w.isWaiting() {
			continue // the units that were granted for it are idle now
		}
		decided = append(decided, w)
		if r.Decisions[i].Granted {
			h.grant(w)
		} else {
			w.state, w.decision = refused, r.Decisions[i]
		}
	}
	h.endRequest()
	decided = append(decided, h.admitQueued()...)
	h.returnIdleOfCentral()
	return decided
}

// admitQueued grants, in their order, the covered requests that came while a
// lease request was outstanding. Without it, each response under load would be
// followed by a lease request for the waiters, and allotments would never be
// used.
func (h *Holder) admitQueued() []*Waiter {
	n := 0
	for ; n < len(h.queue) && h.covered(h.queue[n].needs); n++ {
		h.grant(h.queue[n])
	}
	admitted := slices.Clone(h.queue[:n])
	h.queue = slices.Delete(h.queue, 0, n)
	return admitted
}

// endRequest removes the outstanding lease request.
func (h *Holder) endRequest() {
	h.request, h.requested = nil, nil
	for _, l := range h.pools {
		l.inRequest = 0
	}
}

// AbortWaiters aborts all waiters because the session has ended, and returns
// them. Granted requests continue and are released as usual. The outstanding lease
// request is kept: units that were granted to it are returned when its response
// comes.
func (h *Holder) AbortWaiters() []*Waiter {
	waiters := slices.DeleteFunc(slices.Concat(h.requested, h.queue), func(w *Waiter) bool { return !w.isWaiting() })
	h.queue = nil
	for _, w := range waiters {
		w.state = aborted
	}
	return waiters
}

// Cancel cancels a waiter. It returns false if the waiter was granted already
// and must be released. admitted has the waiters behind it that are granted now;
// otherwise they would wait for the response to a lease request all of whose
// waiters are cancelled.
func (h *Holder) Cancel(w *Waiter) (gone bool, admitted []*Waiter) {
	if w.state != waiting {
		return w.state != granted, nil
	}
	w.state = cancelled
	h.queue = slices.DeleteFunc(h.queue, func(q *Waiter) bool { return q == w })
	if !h.requestHasWaiters() {
		admitted = h.admitQueued()
	}
	return true, admitted
}

// Release ends a granted request with its cost, in nano-units. A second Release
// has no effect.
func (h *Holder) Release(w *Waiter, cost int64) {
	if w.state != granted {
		return
	}
	w.state = finished
	h.running--
	for _, n := range w.needs {
		l := h.pools[n.Pool]
		l.running -= n.Amount
		if n.Kind != wire.Slots {
			l.charged += cost
		}
	}
	h.returnIdleOfCentral()
}

// returnIdleOfCentral counts the idle units of central pools as returned.
func (h *Holder) returnIdleOfCentral() {
	for _, l := range h.pools {
		if idle := l.idle(); l.central && idle > 0 {
			l.returned += idle
		}
	}
}

// HandleRecall switches a pool to central mode. Its idle units are returned; if
// there are none, a Return is due all the same, as the answer to the recall.
func (h *Holder) HandleRecall(pool wire.PoolID, gen int64) {
	l := h.pools[pool]
	if l == nil || gen < l.generation {
		return
	}
	l.generation, l.central, l.reportDue = gen, true, true
	h.returnIdleOfCentral()
}

// hasIdle reports whether units of any pool are idle.
func (h *Holder) hasIdle() bool {
	for _, l := range h.pools {
		if l.idle() > 0 {
			return true
		}
	}
	return false
}

// ReturnIdle returns all idle units.
func (h *Holder) ReturnIdle() {
	for _, l := range h.pools {
		if idle := l.idle(); idle > 0 {
			l.returned += idle
		}
	}
}

// DisableEscrow returns all idle units, and holds none until the response to a
// later lease request allows it, because a correction may have reduced the pool.
// The generation does not change: an earlier report must not answer a later
// recall.
func (h *Holder) DisableEscrow() {
	for _, l := range h.pools {
		l.central = true
	}
	h.escrowFrom = h.lastNumber + 1
	h.returnIdleOfCentral()
}

// Resync reports all leases again, because Postgres may have lost earlier
// reports.
func (h *Holder) Resync() {
	for _, l := range h.pools {
		l.confirmed, l.reportDue = 0, l.reportDue || l.granted > 0
	}
}

// LeaseView is the state of a Holder's lease on one pool.
type LeaseView struct {
	Generation int64
	Central    bool
	// Granted is the greatest granted total that was read, Returned the total returned, Charged the costs of finished
	// requests, Running the units of unfinished ones.
	Granted, Returned, Charged, Running int64
}

// LeaseView returns the state of the lease on a pool.
func (h *Holder) LeaseView(pool wire.PoolID) LeaseView {
	l := h.pools[pool]
	if l == nil {
		return LeaseView{}
	}
	return LeaseView{Generation: l.generation, Central: l.central, Granted: l.granted, Returned: l.returned, Charged: l.charged, Running: l.running}
}

// Reserved returns the units of a pool that running requests hold.
func (h *Holder) Reserved(pool wire.PoolID) int64 {
	if l := h.pools[pool]; l != nil {
		return l.running
	}
	return 0
}

// NextReturn returns the Return to send, or nil: none is sent while one is
// outstanding, or if the outstanding lease request contains the same report.
// Units that came back after that request was sent are returned at once, because
// the request may wait for them. The caller repeats the Return until it calls
// ReturnDelivered.
func (h *Holder) NextReturn() *wire.Return {
	if h.ret != nil {
		return nil
	}
	reports := h.reports((*lease).unreported)
	if len(reports) == 0 {
		return nil
	}
	reports = reports[:min(len(reports), maxReports)]
	h.ret = &wire.Return{V: wire.Version, Session: h.session, BootID: h.bootID, Account: h.account, Reports: reports}
	return h.ret
}

// ReturnDelivered records that the outstanding Return has arrived, or that the
// session is closed and takes none.
func (h *Holder) ReturnDelivered() {
	if h.ret == nil {
		return
	}
	h.confirm(h.ret.Reports)
	h.ret = nil
}

func (h *Holder) confirm(reports []wire.LeaseReport) {
	for _, v := range reports {
		l := h.pools[v.Pool]
		l.confirmed = max(l.confirmed, v.Returned)
		if l.reportDue && v.Generation == l.generation && v.GrantedSeen == l.granted {
			l.reportDue, l.provisional = false, h.request != nil
		}
	}
}
