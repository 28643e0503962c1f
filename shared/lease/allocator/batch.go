package allocator

import (
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
	// LiveSessions is the number of active sessions.
	LiveSessions int64
	// SinceLoss is the time since the last declared loss of commits, very long if there was none. Recovering means that
	// the recovery wait is not over: nothing is granted.
	SinceLoss  time.Duration
	Recovering bool
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

// ApplyReturn applies a Return. It returns Done, or Fenced for a session that
// holds nothing any more.
func (b *Batch) ApplyReturn(r *wire.Return) wire.Status {
	record := b.Sessions[r.Session]
	if record == nil || !record.CanReturn() {
		return wire.Fenced
	}
	b.Allocator.ApplyReports(r.Session, r.Reports)
	return wire.Done
}

// Decide decides a lease request once. A repeated request gets the stored
// result; so does an older one, whose proxy ignores the response because of its
// number. A nil response means that the request must be decided later: either
// recalling is true and idle units are being recalled, or running requests may
// still return units.
//
// applyPolicy is called with the batch before a new decision is made.
func (b *Batch) Decide(request *wire.LeaseRequest, pending *PendingRequest, applyPolicy func(*Batch)) (response *wire.LeaseResponse, recalling bool) {
	key := RequestKey{request.Session, request.Account}
	record, last := b.Sessions[request.Session], b.Results[key]
	switch {
	case record == nil || !record.CanRequest():
		return &wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Fenced}, false
	case last != nil && request.Number <= last.Number:
		return &last.Response, false
	case b.Recovering:
		return &wire.LeaseResponse{V: wire.Version, Number: request.Number, Status: wire.Unavailable}, false
	}
	applyPolicy(b)
	decision, decided := b.Allocator.Decide(request, pending)
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
