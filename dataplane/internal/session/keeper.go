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

	"modelgateway/dataplane/internal/session/bootclock"
	"modelgateway/dataplane/internal/session/guard"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/platform/retry"
	"modelgateway/shared/wire"
)

// Bus carries the messages of sessions.
type Bus interface {
	Register(ctx context.Context, r *wire.RegisterRequest) (*wire.RegisterResponse, error)
	Heartbeat(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error)
	CloseSession(ctx context.Context, r *wire.CloseRequest) (*wire.CloseResponse, error)
	// SubscribeSession subscribes to the recalls and watermarks of a session. Watermarks of earlier sessions are still
	// received.
	SubscribeSession(s wire.SessionID) error
}

// Keys applies key changes.
type Keys interface {
	Reset(floor, epoch int64)
	Apply(c wire.KeyChange)
	// RequireMAC says, after Reset, whether every key has a MAC under one of the peppers.
	RequireMAC(required bool)
}

// Usage is the spool, as far as sessions concern it.
type Usage interface {
	// OpenSession records a new session on disk.
	OpenSession(id wire.SessionID, bootID string) error
	// FinishedSessions lists the sessions other than the open ones.
	FinishedSessions(open ...wire.SessionID) []wire.CloseRequest
	// MarkClosed records that the control plane has closed a session.
	MarkClosed(id wire.SessionID)
	// Republish queues every unsettled event for publication again.
	Republish()
	// HoldUsage says whether unsettled events are seldom published again, because settlement is behind.
	HoldUsage(held bool)
	// UsedCapacity returns how many units of spool capacity are in use.
	UsedCapacity() int64
	// StartedRequests returns how many requests have started in a session.
	StartedRequests(id wire.SessionID) int64
	// WriteError returns why no session can be recorded, or nil.
	WriteError() error
	// EarlierSessions lists the known sessions, the latest first: they may still have units or unsettled events.
	EarlierSessions() []wire.EarlierSession
	guard.Store
}

// Config names the proxy.
type Config struct {
	Name, Build string
	// Capacity is the spool capacity.
	Capacity int64
	// Peppers are the ids of the peppers under which keys are hashed.
	Peppers []string
	// Stream is the stream of changes.
	Stream Stream
	// clock is nil for the clocks of the machine.
	clock clock
}

// callTimeout bounds one message.
const callTimeout = 2 * time.Second

// Keeper keeps the proxy registered: it runs the Client and the Closer of
// package lease/session.
type Keeper struct {
	cfg   Config
	boot  string
	bus   Bus
	keys  Keys
	usage Usage
	hooks Hooks
	log   *slog.Logger
	clock clock
	// freshBegun wakes the goroutine that sends beats in the stream.
	stream     Stream
	freshBegun chan struct{}
	guard      *guard.Guard
	// metrics are safe for concurrent use.
	metrics      metrics
	freshMetrics freshMetrics

	current atomic.Pointer[Session]
	// answeredUntil is when the window has passed since the last message that a control plane has answered.
	answeredUntil atomic.Pointer[session.Instant]
	// changed wakes the goroutine that runs the client and the closer.
	changed chan struct{}
	stop    context.CancelFunc
	tasks   sync.WaitGroup

	// mu guards the following fields. Key changes and the start of a session are applied under it, one at a time.
	mu     sync.Mutex
	client *session.Client
	closer *session.Closer
	// fresh is the freshness of the current session; nil if there is none.
	fresh *fresh
	// allHaveMAC is what the last registration said of all keys.
	allHaveMAC bool
	// alone means that the last heartbeat or registration was not answered. history has the changes that the session knows,
	// epoch is its cluster epoch.
	alone   bool
	history checkpoint.ChangeHistory
	epoch   int64
	// resumable is a session of the earlier process in which this one can continue; nil if there is none.
	resumable *resumable
	// trouble, freshTrouble and checkpointTrouble suppress the log lines of an error that was logged before.
	trouble, freshTrouble, checkpointTrouble retry.ErrorFilter
}

// Report is the state of the proxy that a heartbeat reports beside the applied
// revision.
type Report struct {
	CatalogRev int64
	Running    int64
	Draining   bool
	// Refused are the credentials that their providers refuse.
	Refused []wire.RefusedCredential
}

// Hooks connect the Keeper to the rest of the proxy.
type Hooks struct {
	OnSession func(*Session)
	// OnResume is called when the proxy continues in a session of its earlier process, with the idle units that are left by
	// account. Idle returns those of the current session. Both may be nil: then no session is continued.
	OnResume func(*Session, map[string][]checkpoint.IdleUnits)
	Idle     func() map[string][]checkpoint.IdleUnits
	// OnLoss may be nil.
	OnLoss   func()
	OnChange func(wire.KeyChange)
	State    func() Report
}

// New returns a Keeper that is not started. Each Keeper is one boot.
func New(cfg Config, bus Bus, keys Keys, usage Usage, hooks Hooks, log *slog.Logger, reg prometheus.Registerer) *Keeper {
	if hooks.OnLoss == nil {
		hooks.OnLoss = func() {}
	}
	if hooks.OnResume == nil || hooks.Idle == nil {
		usage = noCheckpoints{usage}
	}
	if cfg.clock == nil {
		cfg.clock = bootclock.Now
	}

	k := &Keeper{
		cfg:        cfg,
		boot:       fmt.Sprintf("%x", ident.New()),
		bus:        bus,
		keys:       keys,
		usage:      usage,
		hooks:      hooks,
		log:        log,
		changed:    make(chan struct{}, 1),
		clock:      cfg.clock,
		stream:     cfg.Stream,
		freshBegun: make(chan struct{}, 1),
	}
	k.metrics, k.freshMetrics = newMetrics(reg, k), newFreshMetrics(reg)
	timing := session.DefaultTiming(rand.N[time.Duration])
	k.client = session.NewClient(k.clock(), k.boot, timing, proxy{k})
	k.closer = session.NewCloser(k.clock(), timing, proxy{k})
	k.guard = guard.New(usage, log)
	k.loadCheckpoint()

	return k
}

// Current returns the session to admit under, or nil. The caller also checks
// that it is valid.
func (k *Keeper) Current() *Session { return k.current.Load() }

// Ready returns an error while there is no valid session.
func (k *Keeper) Ready(context.Context) error {
	switch s := k.Current(); {
	case s == nil:
		return errors.New("session: not registered")
	case !s.Valid():
		return errors.New(
			"session: lapsed: it is not certain that no change of a key or an account was missed; see mgw_fresh_beats_total",
		)
	}
	return nil
}

// Alone reports whether the session is valid although no control plane has answered for
// the window.
func (k *Keeper) Alone() bool {
	s, until := k.Current(), k.answeredUntil.Load()
	return s != nil && s.Valid() && (until == nil || !k.clock().Before(*until))
}

// answered records that a control plane has answered a message that was sent at sentAt.
func (k *Keeper) answered(sentAt session.Instant, window time.Duration) {
	until := sentAt.Add(window)
	k.answeredUntil.Store(&until)
}

// Start registers and sends heartbeats until Stop.
func (k *Keeper) Start(ctx context.Context) {
	ctx, k.stop = context.WithCancel(ctx)
	k.tasks.Go(func() { k.run(ctx) })
	k.tasks.Go(func() { k.runFresh(ctx) })
}

// Stop ends the heartbeats. The session stays valid for up to the window, so that
// running requests can finish.
func (k *Keeper) Stop() {
	k.stop()
	k.tasks.Wait()
}

// Leave ends the session of a proxy that stops, and closes all sessions whose
// usage is settled, until ctx ends. The next process of the proxy closes the
// others.
func (k *Keeper) Leave(ctx context.Context) error {
	var id wire.SessionID
	k.actOn(func(now session.Instant) {
		id, _ = k.client.Opened()
		k.client.Leave(now)
		k.closer.Leave(now)
	})
	if k.run(ctx); !k.left() {
		return fmt.Errorf("session: leave %d: %w", id, ctx.Err())
	}
	return nil
}

func (k *Keeper) left() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closer.Done()
}

// run runs the client and the closer until ctx ends, or until every session is
// closed after Leave.
func (k *Keeper) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()

	for ctx.Err() == nil && !k.left() {
		k.mu.Lock()
		now := k.clock()
		out := k.client.Next(now)
		opened, resumed := k.client.Opened()
		closing, wake := k.closer.Next(now, opened, resumed)
		k.mu.Unlock()
		if out.Register != nil {
			calls.Go(func() { k.register(ctx, out.Register) })
		}
		if out.Open != 0 {
			calls.Go(func() { k.open(out.Open) })
		}
		if out.Heartbeat != nil {
			calls.Go(func() { k.heartbeat(ctx, now, out.Heartbeat) })
		}

		for _, r := range closing {
			calls.Go(func() { k.close(ctx, r) })
		}

		pause := session.Never
		if at := min(out.Wake, wake); at != session.Never {
			pause = max(at-k.clock().Mono, 0)
		}

		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-k.changed:
		case <-timer.C:
		}
	}
}

// event calls do with the lock held, and then wakes run.
func (k *Keeper) event(do func(now session.Instant)) {
	k.mu.Lock()
	do(k.clock())
	k.mu.Unlock()
	select {
	case k.changed <- struct{}{}:
	default: // it is awake
	}
}

// report logs an error, unless the last call failed in the same way. The lock is
// held.
func (k *Keeper) report(ctx context.Context, message string, err error, attributes ...any) {
	if ctx.Err() == nil && k.trouble.IsNew(err) {
		k.log.Warn(message, append(attributes, slog.Any("error", err))...)
	}
}

func (k *Keeper) register(ctx context.Context, r *wire.RegisterRequest) {
	var response *wire.RegisterResponse
	err := k.usage.WriteError() // a session that cannot be recorded could only expire
	if err == nil {
		r.ClockMS, r.Peppers = time.Now().UnixMilli(), k.cfg.Peppers
		r.Name, r.Build, r.Capacity, r.Earlier = k.cfg.Name, k.cfg.Build, k.cfg.Capacity, k.usage.EarlierSessions()
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		response, err = k.bus.Register(call, r)
	}

	if err != nil || response.Status == wire.Unavailable {
		k.subscribeResumable(ctx)
	}

	if err == nil {
		k.handlerOf(response.Status)(func(now session.Instant) { k.registered(ctx, now, response) })
		return
	}

	k.event(func(now session.Instant) {
		k.client.RegisterFailed(now)
		k.report(ctx, "session registration failed", err)
		if ctx.Err() == nil {
			k.resume(now)
		}
	})
}

// registered handles the response to a registration. The lock is held.
func (k *Keeper) registered(ctx context.Context, now session.Instant, response *wire.RegisterResponse) {
	if response.Status == wire.Done {
		k.resumable, k.allHaveMAC = nil, response.AllHaveMAC
	}
	if err := k.client.HandleRegistered(now, response); err != nil {
		k.report(ctx, "session registration failed", err)
	}
	if response.Status == wire.Unavailable {
		k.resume(now)
	}
}

// open records a new session in the spool and subscribes to the messages that are
// pushed to it.
func (k *Keeper) open(id wire.SessionID) {
	err := k.usage.OpenSession(id, k.boot)
	if err == nil {
		err = k.bus.SubscribeSession(id)
	}
	k.actOn(func(now session.Instant) {
		k.client.HandleOpened(now, err)
		k.report(context.Background(), "opening the session failed", err, slog.Int64("session", int64(id)))
	})
}

func (k *Keeper) heartbeat(ctx context.Context, sentAt session.Instant, r *wire.HeartbeatRequest) {
	state := k.hooks.State()
	r.CatalogRevision = state.CatalogRev
	r.Running = state.Running
	r.SpoolUsed = k.usage.UsedCapacity()
	r.Draining = state.Draining
	r.Refused = state.Refused
	r.Started = k.usage.StartedRequests(r.Session)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := k.bus.Heartbeat(call, r)
	if err != nil {
		k.event(func(now session.Instant) {
			k.alone = true
			k.client.HeartbeatFailed(now, r)
			k.report(ctx, "heartbeat failed", err, slog.Int64("session", int64(r.Session)))
		})
		return
	}

	k.handlerOf(response.Status)(func(now session.Instant) {
		synced, err := k.client.HandleHeartbeat(now, r, response)
		k.alone = err != nil
		if synced {
			k.history.Synced(k.client.Applied())
			k.resynced(now, sentAt)
		}
		k.report(ctx, "heartbeat failed", err, slog.Int64("session", int64(r.Session)))
	})
}

func (k *Keeper) close(ctx context.Context, r wire.CloseRequest) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := k.bus.CloseSession(call, &r)
	closed := err == nil && response.Status == wire.Done
	k.event(func(now session.Instant) { k.closer.HandleClosed(now, r, closed) })
}

// Pushed handles a key change that was pushed. The change is applied at once, and
// acknowledged when every earlier one is applied too.
func (k *Keeper) Pushed(c wire.KeyChange, ack func(wire.Ack)) {
	k.actOn(func(session.Instant) {
		if k.client.HandlePushed(c, ack) {
			k.metrics.gaps.Inc()
		}
	})
}

// HeartbeatNow sends a heartbeat as soon as possible, because the control plane may
// wait for the state that it reports.
func (k *Keeper) HeartbeatNow() {
	k.event(func(session.Instant) { k.client.HeartbeatNow() })
}

type metrics struct{ sessions, resumed, gaps prometheus.Counter }

func newMetrics(reg prometheus.Registerer, k *Keeper) metrics {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_session_remaining_seconds",
		Help: "Seconds for which requests are admitted if no further beat in the stream of changes succeeds; 0 without a valid " +
			"session.",
	}, func() float64 {
		if s := k.Current(); s != nil {
			return s.Remaining().Seconds()
		}
		return 0
	})

	return metrics{
		sessions: f.NewCounter(
			prometheus.CounterOpts{Name: "mgw_sessions_total", Help: "Sessions that the proxy registered with the control plane."},
		),
		resumed: f.NewCounter(prometheus.CounterOpts{
			Name: "mgw_sessions_resumed_total",
			Help: "Sessions of an earlier process that the proxy continued because no control plane responded.",
		}),
		gaps: f.NewCounter(
			prometheus.CounterOpts{Name: "mgw_change_gaps_total", Help: "Pushed key changes that arrived before an earlier change."},
		),
	}
}
