package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"modelgateway/dataplane/internal/logdedup"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/platform/sleep"
	"modelgateway/shared/wire"
)

// Bus carries the messages of sessions.
type Bus interface {
	Register(ctx context.Context, r *wire.RegisterRequest) (*wire.RegisterResponse, error)
	Heartbeat(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error)
	CloseSession(ctx context.Context, r *wire.CloseRequest) (*wire.CloseResponse, error)
	// Watch subscribes to what is pushed to the session. The watermarks of earlier ones still come.
	SubscribeSession(s wire.SessionID) error
}

// Keys takes in changes.
type Keys interface {
	Reset(floor int64)
	Apply(c wire.KeyChange)
}

// Usage is the spool, as far as sessions concern it.
type Usage interface {
	// OpenSession records a new session on disk.
	OpenSession(session int64, boot string) error
	// FinishedSessions lists the sessions other than the current one in which no request runs.
	FinishedSessions(current int64) []FinishedSession
	// MarkClosed records that the control plane has closed a session.
	MarkClosed(session int64)
	// Republish queues every unsettled event for publication again.
	Republish()
	// UsedCapacity returns how many units of spool capacity are in use.
	UsedCapacity() int64
	// WriteError returns why no session can be recorded, or nil.
	WriteError() error
	// EarlierSessions lists the known sessions, the latest first: they may still have units or unsettled events.
	EarlierSessions() []wire.EarlierSession
}

// FinishedSession is a session that can be closed: no request runs in it, and its event count is final.
type FinishedSession struct {
	Session    int64
	BootID     string
	FinalCount int64
}

// Config names the proxy.
type Config struct {
	Name, Build string
	// Capacity is the spool capacity.
	Capacity int64
	// Every is the longest pause between renewals; zero means 5 s. Short sessions are renewed more often.
	Every time.Duration
}

const (
	// callTimeout bounds one message; retryPause is the longest pause before the next attempt.
	callTimeout = 2 * time.Second
	retryPause  = time.Second
	// closePause is the time between two attempts to close ended sessions.
	closePause = 2 * time.Second
	// perSession is how often a session is renewed within its length, whatever Config says: a few may be lost.
	perSession = 6
	// shortest is the least pause between renewals.
	shortest = 20 * time.Millisecond
)

// Keeper keeps the proxy registered.
type Keeper struct {
	cfg   Config
	boot  string
	bus   Bus
	keys  Keys
	usage Usage
	// onSession is told of each new session before it is current.
	onSession func(*Session)
	// onLoss is told when Postgres has lost commits, before the next session.
	onLoss func()
	// onChange is told of each applied change.
	onChange func(wire.KeyChange)
	state    func() Report
	log      *slog.Logger
	metrics  metrics
	clock    clock

	current atomic.Pointer[Session]
	hurry   chan struct{}
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	// every is the pause between renewals. It belongs to the goroutine that renews.
	every time.Duration
	// trouble keeps faults that go on out of the log. It belongs to that goroutine too.
	trouble logdedup.Filter

	// mu orders changes among themselves and with the beginning of a session.
	mu sync.Mutex
	// changes are applied in the current session, but for the moment before it becomes that.
	changes session.ChangeLog
	// opened is the id of the one that is or will be current; every other one in the spool has ended.
	opened wire.SessionID
	// acks wait for what lies before their revision.
	acks        map[int64]func(wire.Ack)
	incarnation string
	// epoch is the one of the last session; it belongs to the goroutine that renews.
	epoch int64
}

// Report is what a renewal tells beside the applied revision.
type Report struct {
	CatalogRev int64
	Running    int64
	Draining   bool
	// Refused are the credentials that their providers refuse.
	Refused []wire.RefusedCredential
}

// Hooks joins the Keeper to the rest of the proxy.
type Hooks struct {
	OnSession func(*Session)
	// OnLoss may be nil.
	OnLoss   func()
	OnChange func(wire.KeyChange)
	State    func() Report
}

// New returns a Keeper that is not started. Each Keeper is one boot.
func New(cfg Config, bus Bus, keys Keys, usage Usage, hooks Hooks, log *slog.Logger, reg prometheus.Registerer) *Keeper {
	if cfg.Every == 0 {
		cfg.Every = 5 * time.Second
	}
	if hooks.OnLoss == nil {
		hooks.OnLoss = func() {}
	}
	return &Keeper{
		cfg: cfg, boot: fmt.Sprintf("%x", ident.New()), bus: bus, keys: keys, usage: usage, onSession: hooks.OnSession, onLoss: hooks.OnLoss,
		onChange: hooks.OnChange, state: hooks.State, log: log, metrics: newMetrics(reg),
		hurry: make(chan struct{}, 1), every: cfg.Every, acks: map[int64]func(wire.Ack){}, clock: now,
	}
}

// Current returns the session to admit under, or nil. Its Valid is to be
// asked too.
func (k *Keeper) Current() *Session { return k.current.Load() }

// Ready returns an error while there is no valid session.
func (k *Keeper) Ready(context.Context) error {
	if s := k.Current(); s == nil || !s.Valid() {
		return errors.New("session: none that is valid")
	}
	return nil
}

// Start registers and renews until Stop.
func (k *Keeper) Start(ctx context.Context) {
	ctx, k.stop = context.WithCancel(ctx)
	k.tasks.Go(func() { k.renewals(ctx) })
	k.tasks.Go(func() { k.closings(ctx) })
}

// Stop ends renewal. The session stays valid until its deadline, so that what
// drains can finish.
func (k *Keeper) Stop() {
	k.stop()
	k.tasks.Wait()
}

// Leave ends the session of a drained proxy: it is closed when its events are
// settled, until ctx ends. What is not done then, the next boot does.
func (k *Keeper) Leave(ctx context.Context) error {
	s := k.current.Load()
	if s == nil {
		return nil
	}
	k.end(s)
	for {
		if left := k.closeEnded(ctx); left == 0 {
			return nil
		}
		if !sleep.For(ctx, 100*time.Millisecond) {
			return fmt.Errorf("session: leave %d: %w", s.ID, ctx.Err())
		}
	}
}

func (k *Keeper) renewals(ctx context.Context) {
	for ctx.Err() == nil {
		s := k.current.Load()
		if s == nil {
			if err := k.register(ctx); err != nil {
				if k.trouble.IsNew(err) {
					k.log.Warn("register", slog.Any("error", err))
				}
				sleep.For(ctx, rand.N(retryPause))
			}
			continue
		}
		wait := k.every - rand.N(k.every/10)
		err := k.renew(ctx, s)
		if k.trouble.IsNew(err) {
			k.log.Warn("renew session", slog.Any("error", err), slog.Int64("session", int64(s.ID)))
		}
		if err != nil {
			wait = rand.N(min(retryPause, k.every))
		}
		if k.current.Load() == nil {
			continue // fenced: a new session is needed at once
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-k.hurry:
		}
		timer.Stop()
	}
}

func (k *Keeper) register(ctx context.Context) error {
	if err := k.usage.WriteError(); err != nil {
		return err // a session that cannot be noted would only be one more to expire
	}
	sent := k.clock()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := k.bus.Register(call, &wire.RegisterRequest{V: wire.Version, Name: k.cfg.Name, BootID: k.boot, Build: k.cfg.Build, Capacity: k.cfg.Capacity, Earlier: k.usage.EarlierSessions()})
	if err != nil {
		return err
	}
	if reply.Status != wire.Done {
		return fmt.Errorf("session: register: %s", reply.Status)
	}
	if err := k.open(reply.Session); err != nil {
		return err
	}
	s := &Session{ID: reply.Session, Boot: k.boot, clock: k.clock}
	k.extend(s, sent, session.RegisteredUntil(reply, sent))
	k.mu.Lock()
	k.changes.Begin(s.ID, reply.Revision)
	clear(k.acks)
	k.keys.Reset(reply.Revision)
	k.mu.Unlock()
	k.seeStream(reply.StreamIncarnation)
	k.seeEpoch(reply.ClusterEpoch)
	k.onSession(s)
	k.current.Store(s)
	k.metrics.sessions.Inc()
	k.log.Info("session opened", slog.Int64("session", int64(s.ID)), slog.Int64("rev", reply.Revision))
	return nil
}

// open has the spool and the bus know of a session.
func (k *Keeper) open(id wire.SessionID) error {
	k.mu.Lock()
	k.opened = id
	err := k.usage.OpenSession(int64(id), k.boot)
	k.mu.Unlock()
	if err != nil {
		return fmt.Errorf("session: note session: %w", err)
	}
	if err := k.bus.SubscribeSession(id); err != nil {
		return fmt.Errorf("session: watch: %w", err)
	}
	return nil
}

// renew extends the session, again at once while there are more changes than
// fit into one reply.
func (k *Keeper) renew(ctx context.Context, s *Session) error {
	for {
		sent := k.clock()
		report := k.state()
		call, cancel := context.WithTimeout(ctx, callTimeout)
		reply, err := k.bus.Heartbeat(call, &wire.HeartbeatRequest{
			V: wire.Version, Session: s.ID, BootID: k.boot, AppliedRevision: k.appliedRev(), CatalogRevision: report.CatalogRev,
			Running: report.Running, SpoolUsed: k.usage.UsedCapacity(), Draining: report.Draining, Refused: report.Refused,
		})
		cancel()
		if err != nil {
			return err
		}
		switch reply.Status {
		case wire.Done:
		case wire.Fenced:
			k.log.Warn("session fenced", slog.Int64("session", int64(s.ID)))
			k.end(s)
			return nil
		default:
			return fmt.Errorf("session: renew: %s", reply.Status)
		}
		if reply.ClusterEpoch != 0 && reply.ClusterEpoch != k.epoch {
			k.log.Warn("session is of another epoch", slog.Int64("session", int64(s.ID)))
			k.end(s)
			return nil
		}
		k.applyAll(s, reply.Changes)
		k.seeStream(reply.StreamIncarnation)
		deadline, extended := session.ExtendedUntil(reply, sent)
		if !extended {
			continue // not before everything is applied
		}
		k.extend(s, sent, deadline)
		if len(reply.Changes) == 0 {
			return nil
		}
		// Once more, so that the control plane knows what is applied now.
	}
}

// extend moves the deadline of a session, which counts from the sending of what
// was answered.
func (k *Keeper) extend(s *Session, sent, deadline session.Instant) {
	k.every = max(min(k.cfg.Every, (deadline.Mono-sent.Mono)/perSession), shortest)
	s.extend(deadline)
}

func (k *Keeper) appliedRev() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes.Applied()
}

// end makes a session invalid for good. Changes that are still pushed to it
// are left to the registration of the next one.
func (k *Keeper) end(s *Session) {
	s.end()
	k.current.Store(nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changes.End()
	k.opened = 0
}

// apply applies a change. The lock is held.
func (k *Keeper) apply(c wire.KeyChange) {
	k.keys.Apply(c)
	k.onChange(c)
}

// applyAll applies changes that follow one another without a gap, and sends
// the acknowledgements that waited for them.
func (k *Keeper) applyAll(s *Session, changes []wire.KeyChange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ack, due := k.changes.ApplyFetched(s.ID, changes, k.apply)
	for _, rev := range due {
		k.acks[rev](ack)
		delete(k.acks, rev)
	}
}

// Pushed takes in a change that was pushed. It is applied at once; it is
// acknowledged when everything before it is applied too.
func (k *Keeper) Pushed(c wire.KeyChange, ack func(wire.Ack)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if due, ok := k.changes.ApplyPushed(c, k.apply); ok {
		ack(due)
		return
	}
	if k.changes.Session() == 0 {
		return // the next registration begins after it
	}
	k.metrics.gaps.Inc()
	k.acks[c.Revision] = ack
	k.Hurry() // the renewal brings what is missing
}

// Hurry has the session renewed now, since there is something to report that
// somebody may wait for.
func (k *Keeper) Hurry() {
	select {
	case k.hurry <- struct{}{}:
	default: // it is on its way
	}
}

func (k *Keeper) seeStream(incarnation string) {
	k.mu.Lock()
	changed := k.incarnation != "" && incarnation != "" && incarnation != k.incarnation
	if incarnation != "" {
		k.incarnation = incarnation
	}
	k.mu.Unlock()
	if changed {
		k.log.Warn("the usage stream was made anew: publishing again what is unsettled")
		k.usage.Republish()
	}
}

// seeEpoch has everything told and published again when Postgres has lost
// commits.
func (k *Keeper) seeEpoch(epoch int64) {
	changed := k.epoch != 0 && epoch != k.epoch
	k.epoch = epoch
	if changed {
		k.log.Warn("postgres has lost commits: telling again what is held and what is unsettled", slog.Int64("epoch", epoch))
		k.usage.Republish()
		k.onLoss()
	}
}

func (k *Keeper) closings(ctx context.Context) {
	for sleep.For(ctx, closePause) {
		k.closeEnded(ctx)
	}
}

// closeEnded closes what sessions it can and returns how many are left.
func (k *Keeper) closeEnded(ctx context.Context) (left int) {
	for _, e := range k.ended() {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		reply, err := k.bus.CloseSession(call, &wire.CloseRequest{V: wire.Version, Session: wire.SessionID(e.Session), BootID: e.BootID, FinalCount: e.FinalCount})
		cancel()
		if err != nil || reply.Status != wire.Done {
			left++
			continue
		}
		k.usage.MarkClosed(e.Session)
		k.log.Info("session closed", slog.Int64("session", e.Session), slog.Int64("events", e.FinalCount))
	}
	return left
}

// ended lists the sessions that can be closed.
func (k *Keeper) ended() []FinishedSession {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.usage.FinishedSessions(int64(k.opened))
}

type metrics struct{ sessions, gaps prometheus.Counter }

func newMetrics(reg prometheus.Registerer) metrics {
	f := promauto.With(reg)
	return metrics{
		sessions: f.NewCounter(prometheus.CounterOpts{Name: "mgw_sessions_total", Help: "Sessions opened with the control plane."}),
		gaps:     f.NewCounter(prometheus.CounterOpts{Name: "mgw_change_gaps_total", Help: "Pushed changes that came before an earlier one."}),
	}
}
