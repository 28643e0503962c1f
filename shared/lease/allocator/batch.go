package allocator

import (
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
	"time"
)

// Docket is what one transaction of ops and returns works on: pools and leases,
// the sessions that ask, and the stored results of their ops.
type Batch struct {
	Allocator *Allocator
	// Tenures holds the sessions that the messages name, as far as they exist.
	Sessions map[wire.SessionID]*session.Record
	// Results holds the last stored result by session and account; Op puts the new ones in.
	Results map[RequestKey]*Result
	// Live is the number of sessions that admit.
	LiveSessions int64
	// SinceLoss is how long ago it was declared that Postgres has lost commits; very long if it never has. Recovering says
	// that nothing is granted yet.
	SinceLoss  time.Duration
	Recovering bool
}

// OpKey names the series of ops of one account in one session.
type RequestKey struct {
	Session wire.SessionID
	Account string
}

// Result is the stored outcome of an op.
type Result struct {
	Number   int64
	Response wire.LeaseResponse
	// Fresh marks one that this transaction made.
	New bool
}

// Return takes in what a session gives back.
func (d *Batch) ApplyReturn(r *wire.Return) wire.Status {
	t := d.Sessions[r.Session]
	if t == nil || !t.CanReturn() {
		return wire.Fenced
	}
	d.Allocator.ApplyReports(r.Session, r.Reports)
	return wire.Done
}

// Op decides an op once: a repeated one gets the stored result, and an older
// one gets it too, which its proxy ignores by the number. A nil reply means
// that the op is to be asked again later: because idle units are being
// recalled, or else because running requests may still make room.
//
// ease is called before a decision that is made anew.
func (d *Batch) Decide(op *wire.LeaseRequest, stay *PendingRequest, ease func()) (reply *wire.LeaseResponse, recalling bool) {
	key := RequestKey{op.Session, op.Account}
	t, last := d.Sessions[op.Session], d.Results[key]
	switch {
	case t == nil || !t.CanRequest():
		return &wire.LeaseResponse{V: wire.Version, Number: op.Number, Status: wire.Fenced}, false
	case last != nil && op.Number <= last.Number:
		return &last.Response, false
	case d.Recovering:
		return &wire.LeaseResponse{V: wire.Version, Number: op.Number, Status: wire.Unavailable}, false
	}
	ease()
	fresh, decided := d.Allocator.Decide(op, stay)
	switch {
	case !decided:
		return nil, fresh.Status == wire.Wait
	case fresh.Status == wire.Wait: // no result: the proxy asks again
		return &fresh, true
	}
	d.Results[key] = &Result{Number: op.Number, Response: fresh, New: true}
	return &fresh, false
}
