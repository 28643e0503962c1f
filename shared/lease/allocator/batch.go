package allocator

import (
	"slices"
	"time"

	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// Batch is the state of one transaction that decides lease requests and returns:
// pools and leases, the sessions that sent the messages, and the stored results
// of their requests.
type Batch struct {
	Allocator *Allocator
	// Sessions has the records of the sessions that the messages name, if they exist.
	Sessions map[wire.SessionID]*session.Record
	// Results has the last stored result by session and account; Decide adds the new ones.
	Results map[RequestKey]*Result
	// LiveProxies is the number of proxies with an active session, which share what may be held or used without a decision.
	LiveProxies int64
	// SinceLoss is the time since the last declared loss of commits by the clock of Postgres, very long if there was none.
	SinceLoss time.Duration
	// Recovering means that the recovery wait after the loss is not over: nothing is granted.
	Recovering bool
	// LockedPools and LockedSessions are those whose rows another transaction holds. Messages that name one of them get
	// the status Unavailable, so that a control plane that is stopped inside a transaction delays no others.
	LockedPools    map[wire.PoolID]bool
	LockedSessions map[wire.SessionID]bool
}

// RequestKey identifies the series of lease requests of one account in one
// session.
type RequestKey struct {
	Session wire.SessionID
	Account string
}

// Result is the stored outcome of a lease request.
type Result struct {
	Number   int64
	Response wire.LeaseResponse
	// New marks a result of this transaction.
	New bool
}

// locked reports whether a message needs rows that another transaction holds.
func (b *Batch) locked(session wire.SessionID, reports []wire.LeaseReport, needs [][]wire.Need) bool {
	if len(b.LockedPools)+len(b.LockedSessions) == 0 {
		return false
	}
	return b.LockedSessions[session] ||
		slices.ContainsFunc(reports, func(r wire.LeaseReport) bool { return b.LockedPools[r.Pool] }) ||
		slices.ContainsFunc(needs, func(request []wire.Need) bool {
			return slices.ContainsFunc(request, func(n wire.Need) bool { return b.LockedPools[n.Pool] })
		})
}

// ApplyReturn applies a Return. The status of the response is Done, Fenced for a
// session that holds nothing any more, or Unavailable. A message without the boot
// id of its session comes from another proxy and has no effect.
func (b *Batch) ApplyReturn(r *wire.Return) wire.ReturnResponse {
	if b.locked(r.Session, r.Reports, nil) {
		return wire.ReturnResponse{V: wire.Version, Status: wire.Unavailable}
	}
	record := b.Sessions[r.Session]
	if record == nil || record.BootID != r.BootID || !record.CanReturn() {
		return wire.ReturnResponse{V: wire.Version, Status: wire.Fenced}
	}
	reports := b.believed(record, r.Account, r.Reports)
	b.Allocator.ApplyReports(r.Session, reports)
	return wire.ReturnResponse{V: wire.Version, Status: wire.Done, Settled: b.Allocator.Settled(r.Session, reports)}
}

// lossClaims is how long after a declared loss of commits the sessions that it
// ended may report grants that Postgres has lost. They do so within the recovery
// wait, or as soon as they can send again.
const lossClaims = time.Hour

// believed returns the reports that can be true: those of the account's own
// pools, whose totals Postgres has granted. A session that a loss of commits has
// ended may know of lost grants; otherwise a faulty proxy could take units of any
// pool by a report.
func (b *Batch) believed(record *session.Record, account string, reports []wire.LeaseReport) []wire.LeaseReport {
	mayKnowMore := record.State == session.Fenced && b.SinceLoss < lossClaims
	believed := make([]wire.LeaseReport, 0, len(reports))
	for _, v := range reports {
		p, granted := b.Allocator.Pools[v.Pool], int64(0)
		if l := b.Allocator.Leases[LeaseKey{v.Pool, record.ID}]; l != nil {
			granted = l.Granted
		}
		if mayKnowMore && p != nil && v.GrantedSeen > granted && mayGrant(p, granted, v.GrantedSeen-granted) {
			granted = v.GrantedSeen
		}
		if p != nil && p.Account == account && v.GrantedSeen <= granted && v.Returned <= granted {
			believed = append(believed, v)
		}
	}
	return believed
}

// ownsPools reports whether every pool that a lease request needs is one of its
// account, or unknown.
func (b *Batch) ownsPools(request *wire.LeaseRequest) bool {
	for _, needs := range request.Needs {
		for _, n := range needs {
			if p := b.Allocator.Pools[n.Pool]; p != nil && p.Account != request.Account {
				return false
			}
		}
	}
	return true
}

// Decide decides a lease request once. A repeated request gets the stored
// result; so does an older one, whose proxy ignores the response because of its
// number. A nil response means that the request must be decided later: either
// recalling is true and idle units are being recalled, or running requests may
// still return units.
//
// applyPolicy is called with the batch before a new decision is made.
func (b *Batch) Decide(
	request *wire.LeaseRequest,
	pending *PendingRequest,
	applyPolicy func(*Batch),
) (response *wire.LeaseResponse, recalling bool) {
	if b.locked(request.Session, request.Reports, request.Needs) {
		return &wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Unavailable}, false
	}

	key := RequestKey{request.Session, request.Account}
	record, last := b.Sessions[request.Session], b.Results[key]
	switch {
	case record == nil || record.BootID != request.BootID || !record.CanReturn():
		return &wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Fenced}, false
	case last != nil && request.Number <= last.Number: // a fenced session must learn of its grants, in order to return them
		return &last.Response, false
	case !record.MayAdmit():
		return &wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Fenced}, false
	case b.Recovering || !b.ownsPools(request) || b.Allocator.exceedsTotals(request):
		return &wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Unavailable}, false
	}

	applyPolicy(b)
	checked := *request
	checked.Reports = b.believed(record, request.Account, request.Reports)
	b.Allocator.Live = b.LiveProxies
	decision, decided := b.Allocator.Decide(&checked, pending)
	switch {
	case !decided:
		return nil, decision.Status == wire.Wait
	case decision.Status == wire.Wait: // not stored: the proxy repeats the request
		return &decision, true
	}

	b.Results[key] = &Result{Number: request.Number, Response: decision, New: true}
	return &decision, false
}

// Recalls returns the recalls to send after the commit, by session.
func (b *Batch) Recalls() map[wire.SessionID][]wire.Recall { return b.Allocator.ToRecall() }
