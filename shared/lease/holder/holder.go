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
	kind       wire.Kind
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
	p := h.pools[n.Pool]
	if p == nil {
		p = &lease{kind: n.Kind, generation: 1, central: true}
		h.pools[n.Pool] = p
	}
	return p
}

// Running returns the number of granted requests that have not finished.
func (h *Holder) Running() int { return h.running }

// Reserve reserves the needs of one request. The waiter is granted at once if
// every pool has enough idle units and no request waits; otherwise it queues.
func (h *Holder) Reserve(needs []wire.Need) *Waiter {
	t := &Waiter{needs: needs}
	covered := h.covered(needs)
	if covered && len(h.queue) == 0 && !h.requestHasWaiters() {
		h.grant(t)
		return t
	}
	h.queue = append(h.queue, t)
	return t
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
		p := h.lease(n)
		all = all && !p.central && p.idle() >= n.Amount
	}
	return all
}

func (h *Holder) grant(t *Waiter) {
	for _, n := range t.needs {
		h.lease(n).running += n.Amount
	}
	t.state = granted
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
	for _, t := range h.requested {
		h.request.Needs = append(h.request.Needs, t.needs)
	}
	for _, report := range h.request.Reports {
		h.pools[report.Pool].inRequest = report.Returned
	}
	return h.request
}

// requestReports returns the reports of a lease request: of the leases that it
// needs, of those that running requests hold, and of those that have something
// to report. Others are left out, because an account may have used a great many
// key limits in a session.
func (h *Holder) requestReports() []wire.LeaseReport {
	needed := map[*lease]bool{}
	for _, t := range h.requested {
		for _, n := range t.needs {
			needed[h.pools[n.Pool]] = true
		}
	}
	reports := h.reports(func(l *lease) bool { return needed[l] })
	others := h.reports(func(l *lease) bool { return !needed[l] && (l.unreported() || l.running > 0) })
	return append(reports, others[:min(len(others), max(maxReports-len(reports), 0))]...)
}

func (h *Holder) reports(want func(*lease) bool) []wire.LeaseReport {
	var reports []wire.LeaseReport
	for id, p := range h.pools {
		if want(p) {
			reports = append(reports, wire.LeaseReport{Pool: id, Generation: p.generation, GrantedSeen: p.granted, Returned: p.returned})
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
		if p := h.pools[g.Pool]; p != nil {
			p.reportDue = p.reportDue || (p.provisional && g.Granted > p.granted)
			p.granted, p.provisional = max(p.granted, g.Granted), false
			if g.Generation >= p.generation && (g.Central || r.Number >= h.escrowFrom) {
				p.generation, p.central = g.Generation, g.Central
			}
		}
	}
	var decided []*Waiter
	for i, t := range h.requested {
		if !t.isWaiting() {
			continue // the units that were granted for it are idle now
		}
		decided = append(decided, t)
		if r.Decisions[i].Granted {
			h.grant(t)
		} else {
			t.state, t.decision = refused, r.Decisions[i]
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
	for _, p := range h.pools {
		p.inRequest = 0
	}
}

// AbortWaiters aborts all waiters because the session has ended, and returns
// them. Granted requests go on and are released as usual. The outstanding lease
// request is kept: units that were granted to it are returned when its response
// comes.
func (h *Holder) AbortWaiters() []*Waiter {
	waiters := slices.DeleteFunc(slices.Concat(h.requested, h.queue), func(t *Waiter) bool { return !t.isWaiting() })
	h.queue = nil
	for _, t := range waiters {
		t.state = aborted
	}
	return waiters
}

// Cancel cancels a waiter. It returns false if the waiter was granted already
// and must be released. admitted has the waiters behind it that are granted now;
// otherwise they would wait for the response to a lease request all of whose
// waiters are cancelled.
func (h *Holder) Cancel(t *Waiter) (gone bool, admitted []*Waiter) {
	if t.state != waiting {
		return t.state != granted, nil
	}
	t.state = cancelled
	h.queue = slices.DeleteFunc(h.queue, func(q *Waiter) bool { return q == t })
	if !h.requestHasWaiters() {
		admitted = h.admitQueued()
	}
	return true, admitted
}

// Release ends a granted request with its cost, in nano-units. A second Release
// has no effect.
func (h *Holder) Release(t *Waiter, cost int64) {
	if t.state != granted {
		return
	}
	t.state = finished
	h.running--
	for _, n := range t.needs {
		p := h.pools[n.Pool]
		p.running -= n.Amount
		if n.Kind != wire.Slots {
			p.charged += cost
		}
	}
	h.returnIdleOfCentral()
}

// returnIdleOfCentral counts the idle units of central pools as returned.
func (h *Holder) returnIdleOfCentral() {
	for _, p := range h.pools {
		if idle := p.idle(); p.central && idle > 0 {
			p.returned += idle
		}
	}
}

// HandleRecall switches a pool to central mode. Its idle units are returned; if
// there are none, a Return is due all the same, as the answer to the recall.
func (h *Holder) HandleRecall(pool wire.PoolID, gen int64) {
	p := h.pools[pool]
	if p == nil || gen < p.generation {
		return
	}
	p.generation, p.central, p.reportDue = gen, true, true
	h.returnIdleOfCentral()
}

// hasIdle reports whether units of any pool are idle.
func (h *Holder) hasIdle() bool {
	for _, p := range h.pools {
		if p.idle() > 0 {
			return true
		}
	}
	return false
}

// ReturnIdle returns all idle units.
func (h *Holder) ReturnIdle() {
	for _, p := range h.pools {
		if idle := p.idle(); idle > 0 {
			p.returned += idle
		}
	}
}

// DisableEscrow returns all idle units, and holds none until the response to a
// later lease request allows it, because a correction may have reduced the pool.
// The generation does not change: an earlier report must not answer a later
// recall.
func (h *Holder) DisableEscrow() {
	for _, p := range h.pools {
		p.central = true
	}
	h.escrowFrom = h.lastNumber + 1
	h.returnIdleOfCentral()
}

// Resync reports all leases again, because Postgres may have lost earlier
// reports.
func (h *Holder) Resync() {
	for _, p := range h.pools {
		p.confirmed, p.reportDue = 0, p.reportDue || p.granted > 0
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
	p := h.pools[pool]
	if p == nil {
		return LeaseView{}
	}
	return LeaseView{Generation: p.generation, Central: p.central, Granted: p.granted, Returned: p.returned, Charged: p.charged, Running: p.running}
}

// Reserved returns the units of a pool that running requests hold.
func (h *Holder) Reserved(pool wire.PoolID) int64 {
	if p := h.pools[pool]; p != nil {
		return p.running
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
		p := h.pools[v.Pool]
		p.confirmed = max(p.confirmed, v.Returned)
		if p.reportDue && v.Generation == p.generation && v.GrantedSeen == p.granted {
			p.reportDue, p.provisional = false, h.request != nil
		}
	}
}
