package lease

import "time"

// Docket is what one transaction of ops and returns works on: pools and leases,
// the sessions that ask, and the stored results of their ops.
type Docket struct {
	Book *Book
	// Tenures holds the sessions that the messages name, as far as they exist.
	Tenures map[SessionID]*Tenure
	// Results holds the last stored result by session and account; Op puts the new ones in.
	Results map[OpKey]*Result
	// Live is the number of sessions that admit.
	Live int64
	// SinceLoss is how long ago it was declared that Postgres has lost commits; very long if it never has. Recovering says
	// that nothing is granted yet.
	SinceLoss  time.Duration
	Recovering bool
}

// OpKey names the series of ops of one account in one session.
type OpKey struct {
	Session SessionID
	Account string
}

// Result is the stored outcome of an op.
type Result struct {
	No    int64
	Reply OpReply
	// Fresh marks one that this transaction made.
	Fresh bool
}

// Return takes in what a session gives back.
func (d *Docket) Return(r *Return) Status {
	t := d.Tenures[r.Session]
	if t == nil || !t.GivesBack() {
		return Fenced
	}
	d.Book.Report(r.Session, r.Views)
	return Done
}

// Op decides an op once: a repeated one gets the stored result, and an older
// one gets it too, which its proxy ignores by the number. A nil reply means
// that the op is to be asked again later: because idle units are being
// recalled, or else because running requests may still make room.
//
// ease is called before a decision that is made anew.
func (d *Docket) Op(op *Op, stay *Stay, ease func()) (reply *OpReply, recalling bool) {
	key := OpKey{op.Session, op.Account}
	t, last := d.Tenures[op.Session], d.Results[key]
	switch {
	case t == nil || !t.Asks():
		return &OpReply{V: Version, No: op.No, Status: Fenced}, false
	case last != nil && op.No <= last.No:
		return &last.Reply, false
	case d.Recovering:
		return &OpReply{V: Version, No: op.No, Status: Unavailable}, false
	}
	ease()
	fresh, decided := d.Book.Op(op, stay)
	switch {
	case !decided:
		return nil, fresh.Status == Wait
	case fresh.Status == Wait: // no result: the proxy asks again
		return &fresh, true
	}
	d.Results[key] = &Result{No: op.No, Reply: fresh, Fresh: true}
	return &fresh, false
}
