// Package changestream appends every committed change of a key or an account to
// the stream of changes, from which proxies learn that they have missed none
// (docs/protocol/stream.md).
//
// A change is appended after its commit, by any replica, until the stream has had
// it for the window of the sessions: session.Confirmation decides. Postgres has the
// revision up to which this is done, so that a replica that starts continues there.
//
// A revocation with revision 42:
//
//	Appender.Append   right after the commit, without Postgres: the stream has it, and NATS repeats it to all proxies
//	Appender.Round    a second later: the revision is new in Postgres, and the stream has the change at some place
//	Appender.Round    after the window and a margin: the stream still has it there, so it is confirmed, and Postgres gets
//	                  revision 42 as the one up to which this is done
//
// If the stream has lost it in between, the place has another message: it is appended again, and its time starts again.
// Ends of sessions and cluster epochs (ends.go) take the same way, and so do revocations that an operator has appended
// while no control plane ran (direct.go).
package changestream

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// ErrOvertaken means that another replica has appended a change under the same
// subject.
var ErrOvertaken = errors.New("changestream: another replica has appended a change of the same key or account")

// Stream is the stream of changes. Its methods create it again if it is missing.
type Stream interface {
	// KeepChanges declares the stream for sessions with this window, and keeps it.
	KeepChanges(ctx context.Context, window time.Duration) error
	// LastChange returns the last change in the stream that has a subject, and where it is. sequence is that of the last
	// message of the subject, also if it is no change; zero if there is none.
	LastChange(ctx context.Context, subject string) (last wire.StreamChange, at session.Place, sequence uint64, err error)
	// AppendChange appends a change behind the message of its subject with a sequence number. The error is ErrOvertaken if
	// that one is not the last.
	AppendChange(ctx context.Context, c *wire.StreamChange, behind uint64) (session.Place, error)
	// ChangeAt returns the place of the change that the stream has at a place: it is another one if the stream has lost the
	// change.
	ChangeAt(ctx context.Context, at session.Place) (session.Place, error)
	// Window returns the longest window for which the stream was declared: no session has a longer one.
	Window(ctx context.Context) (time.Duration, error)
}

// Store is the Appender's view of Postgres.
type Store interface {
	// ChangesToStream returns the streamed revision, and up to limit changes after a revision, or after the streamed one if
	// it is greater, in order.
	ChangesToStream(ctx context.Context, after int64, limit int) (streamed int64, changes []wire.KeyChange, err error)
	// RaiseStreamed raises the streamed revision.
	RaiseStreamed(ctx context.Context, revision int64) error
	// EndingSessions returns the active sessions that are to be fenced, and the cluster epoch while the recovery wait lasts;
	// otherwise zero.
	EndingSessions(ctx context.Context) (sessions []EndingSession, epoch int64, err error)
	// FenceEnding fences sessions that are to be fenced. It leaves out those whose rows are locked.
	FenceEnding(ctx context.Context, ids []wire.SessionID) (fenced int, err error)
	// LongestWindow returns the longest window of the active sessions; zero if there is none.
	LongestWindow(ctx context.Context) (time.Duration, error)
}

// EndingSession is an active session that is to be fenced when the stream has
// confirmed its end: until then, its proxy may admit.
type EndingSession struct {
	ID wire.SessionID
	// Window is for how long its proxy admits after a beat in the stream.
	Window time.Duration
}

const (
	// interval is the time between two looks at Postgres, unless Wake is called.
	interval = time.Second
	// maxRead bounds the changes of one read, maxPending those that wait for their confirmation.
	maxRead, maxPending = 500, 20_000
	// callTimeout bounds one round.
	callTimeout = 10 * time.Second
)

// pending is a message that is not confirmed.
type pending struct {
	message      wire.StreamChange
	confirmation *session.Confirmation
	// stored is true once the stream had it; replaced, once there is a later change with the same subject, which includes its
	// effect: that one is confirmed instead.
	stored, replaced bool
}

// Appender appends the changes. It is not safe for concurrent use, except Wake.
type Appender struct {
	store  Store
	stream Stream
	// window is that of new sessions. margin is what to add for the drift of clocks.
	window time.Duration
	margin func(time.Duration) time.Duration
	log    *slog.Logger
	wake   chan struct{}
	begun  time.Time
	// read is the revision up to which changes were read from Postgres; pending are those of them that are not confirmed, in
	// order.
	read    int64
	pending []*pending
	// newest has the last one of each subject.
	newest map[string]*pending
	// ends are the ends of sessions and the epoch that are not confirmed, by subject.
	ends map[string]*pending
	// epoch is the last cluster epoch that is confirmed.
	epoch   atomic.Int64
	failing bool

	appended, again, failed prometheus.Counter
	waiting                 prometheus.Gauge
}

// New returns an Appender for the window of new sessions. margin returns what to add
// to a window for the drift of clocks.
func New(
	store Store,
	stream Stream,
	window time.Duration,
	margin func(time.Duration) time.Duration,
	log *slog.Logger,
	reg prometheus.Registerer,
) *Appender {
	f := promauto.With(reg)
	return &Appender{
		store:  store,
		stream: stream,
		window: window,
		margin: margin,
		log:    log,
		wake:   make(chan struct{}, 1),
		begun:  time.Now(),
		newest: map[string]*pending{},
		ends:   map[string]*pending{},
		appended: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_changes_appended_total",
			Help: "Changes of keys and accounts that this replica has appended to the stream of changes.",
		}),
		again: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_changes_lost_total",
			Help: "Changes that the stream of changes had acknowledged and then lost; they are appended again.",
		}),
		failed: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_changes_append_failures_total",
			Help: "Failed attempts to append changes to the stream of changes, or to find them in it.",
		}),
		waiting: f.NewGauge(prometheus.GaugeOpts{
			Name: "mgw_changes_waiting",
			Help: "Committed changes that the stream of changes does not have, or not for the whole window of the sessions.",
		}),
	}
}

// Wake makes the Appender look for a change that was just committed.
func (a *Appender) Wake() {
	select {
	case a.wake <- struct{}{}:
	default: // it is awake
	}
}

// Begin declares the stream for new sessions and the active ones, whose window may be
// longer. Call it before announcing the window to any proxy.
func (a *Appender) Begin(ctx context.Context) error {
	longest, err := a.store.LongestWindow(ctx)
	if err != nil {
		return err
	}
	a.window = max(a.window, longest)
	return a.stream.KeepChanges(ctx, a.window)
}

// Run appends changes until ctx ends.
func (a *Appender) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.wake:
		}

		err := a.Round(ctx)
		switch {
		case err == nil:
			a.failing = false
		case ctx.Err() == nil:
			a.failed.Inc()
			if !a.failing {
				a.failing = true
				a.log.WarnContext(ctx, "changes of keys and accounts are not in the stream of changes yet", slog.Any("error", err))
			}
		}

		timer.Reset(interval)
	}
}

// Round takes the next step of each change that is not confirmed, and reads those that were committed meanwhile. Steps need no
// Postgres: a change that the stream loses is appended again also while Postgres does not answer. An error with one change does
// not keep the others back.
func (a *Appender) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	steps := a.steps(ctx)
	if err := a.readChanges(ctx); err != nil {
		return errors.Join(steps, err)
	}
	read := a.steps(ctx)

	a.waiting.Set(float64(len(a.pending)))
	return errors.Join(steps, read, a.confirm(ctx), a.endSessions(ctx))
}

// steps takes the next step of each change, if it is due.
func (a *Appender) steps(ctx context.Context) error {
	var errs []error
	for _, p := range a.pending {
		if err := a.step(ctx, p); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// readChanges reads the changes from Postgres that are new, and forgets those that
// another replica has confirmed.
func (a *Appender) readChanges(ctx context.Context) error {
	for len(a.pending) < maxPending {
		streamed, changes, err := a.store.ChangesToStream(ctx, a.read, maxRead)
		if err != nil {
			return err
		}
		for len(a.pending) > 0 && a.pending[0].message.Change.Revision <= streamed {
			a.forget(1)
		}
		a.read = max(a.read, streamed)
		for _, c := range changes {
			a.add(c)
		}
		if len(changes) < maxRead {
			return nil
		}
	}
	return nil
}

// newPending returns a message that the stream must have for a window.
func (a *Appender) newPending(m wire.StreamChange, window time.Duration) *pending {
	m.V = wire.Version
	return &pending{message: m, confirmation: session.NewConfirmation(window + a.margin(window))}
}

func (a *Appender) add(c wire.KeyChange) {
	p := a.newPending(wire.StreamChange{Change: c}, a.window)
	if older := a.newest[c.Subject()]; older != nil {
		older.replaced = true
	}
	a.newest[c.Subject()] = p
	a.pending, a.read = append(a.pending, p), c.Revision
}

// forget forgets the first n changes.
func (a *Appender) forget(n int) {
	for _, p := range a.pending[:n] {
		if of := p.message.Subject(); a.newest[of] == p {
			delete(a.newest, of)
		}
	}
	a.pending = a.pending[n:]
}

// now is the time for confirmations, which use the monotonic clock only.
func (a *Appender) now() session.Instant { return session.Instant{Mono: time.Since(a.begun)} }

// step appends a change, or finds out whether the stream still has it.
func (a *Appender) step(ctx context.Context, p *pending) error {
	switch {
	case p.replaced:
	case p.confirmation.Append():
		return a.append(ctx, p)
	case p.confirmation.Due(a.now()):
		found, err := a.stream.ChangeAt(ctx, p.confirmation.Place())
		if err != nil {
			return err
		}
		if p.confirmation.Verified(found); p.confirmation.Append() {
			return a.append(ctx, p)
		}
	}
	return nil
}

// append appends a message that is not confirmed.
func (a *Appender) append(ctx context.Context, p *pending) error {
	at, appended, err := a.put(ctx, p.message)
	if errors.Is(err, ErrOvertaken) {
		return nil // the next round finds the other change
	}
	if err != nil {
		return err
	}
	if appended && p.stored {
		a.again.Inc()
	}
	p.stored = true
	p.confirmation.Appended(a.now(), at)
	return nil
}

// put appends a message, unless the stream has it, or a later one of the same
// subject, which includes its effect. The stream keeps one message per
// subject, so an older change must not replace a newer one, and replicas must not
// replace the messages of one another for ever.
func (a *Appender) put(ctx context.Context, m wire.StreamChange) (at session.Place, appended bool, err error) {
	last, at, sequence, err := a.stream.LastChange(ctx, m.Subject())
	if err != nil || last.Includes(&m) {
		return at, false, err
	}
	m.ID = rand.Text()
	if at, err = a.stream.AppendChange(ctx, &m, sequence); err != nil {
		return at, false, err
	}
	a.appended.Inc()
	return at, true, nil
}

// Append appends a change that was just committed. It needs no Postgres, and may be
// called by several goroutines after Begin. A round confirms the change later.
func (a *Appender) Append(ctx context.Context, c wire.KeyChange) error {
	defer a.Wake()
	for {
		_, _, err := a.put(ctx, wire.StreamChange{V: wire.Version, Change: c})
		if !errors.Is(err, ErrOvertaken) {
			return err
		}
	}
}

// confirm records the changes that are confirmed, up to the first one that is not.
func (a *Appender) confirm(ctx context.Context) error {
	n := 0
	for n < len(a.pending) && (a.pending[n].replaced || a.pending[n].confirmation.Done()) {
		n++
	}
	if n == 0 {
		return nil
	}
	if err := a.store.RaiseStreamed(ctx, a.pending[n-1].message.Change.Revision); err != nil {
		return err
	}
	a.forget(n)
	a.waiting.Set(float64(len(a.pending)))
	return nil
}
