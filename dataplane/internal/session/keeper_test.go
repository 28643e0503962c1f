package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

var timing = session.DefaultTiming(nil)

var errCut = errors.New("cut off")

// plane is a control plane of one proxy: it records the messages, and
// answers after delay.
type plane struct {
	mu      sync.Mutex
	begun   time.Time
	valid   time.Duration
	delay   time.Duration
	cut     bool // no message gets through
	lose    bool // messages arrive, replies are lost
	rev     int64
	changes []wire.KeyChange
	page    int // most changes of one renewal; zero: all
	stream  string
	next    wire.SessionID
	fenced  map[wire.SessionID]bool
	settled map[wire.SessionID]int64 // final count that is settled
	renews  []renewal
	// log has every other message.
	log []string
	// busy, when set, is called within Watch.
	busy func()
}

type renewal struct {
	At      time.Duration
	Session wire.SessionID
	Applied int64
}

func (p *plane) enter(ctx context.Context) error {
	p.mu.Lock()
	cut, delay := p.cut, p.delay
	p.mu.Unlock()
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(delay)
	return ctx.Err()
}

func (p *plane) note(format string, args ...any) { p.log = append(p.log, fmt.Sprintf(format, args...)) }

func (p *plane) Register(ctx context.Context, r *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	p.note("register %s %s capacity %d", r.Name, r.Build, r.Capacity)
	return &wire.RegisterResponse{Status: wire.Done, Session: p.next, ValidMS: p.valid.Milliseconds(), Revision: p.rev, StreamIncarnation: p.stream}, nil
}

func (p *plane) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renews = append(p.renews, renewal{time.Since(p.begun), r.Session, r.AppliedRevision})
	if p.fenced[r.Session] {
		return &wire.HeartbeatResponse{Status: wire.Fenced}, nil
	}
	reply := &wire.HeartbeatResponse{Status: wire.Done, ValidMS: p.valid.Milliseconds(), StreamIncarnation: p.stream}
	for _, c := range p.changes {
		if c.Revision > r.AppliedRevision && (p.page == 0 || len(reply.Changes) < p.page) {
			reply.Changes = append(reply.Changes, c)
		}
	}
	reply.More = p.page > 0 && len(reply.Changes) == p.page
	if p.lose {
		return nil, errCut
	}
	return reply, nil
}

func (p *plane) CloseSession(ctx context.Context, r *wire.CloseRequest) (*wire.CloseResponse, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fenced[r.Session] = true
	if p.settled[r.Session] < r.FinalCount {
		return &wire.CloseResponse{Status: wire.Wait}, nil
	}
	p.note("closed %d of %s with %d", r.Session, r.BootID, r.FinalCount)
	return &wire.CloseResponse{Status: wire.Done}, nil
}

func (p *plane) SubscribeSession(id wire.SessionID) error {
	p.mu.Lock()
	p.note("watch %d", id)
	busy := p.busy
	p.mu.Unlock()
	if busy != nil {
		busy()
	}
	return nil
}

// change commits a change of a key.
func (p *plane) change() wire.KeyChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := wire.KeyChange{V: 1, PreviousRevision: p.rev, Revision: p.rev + 1, Kind: wire.KeyRevoked}
	c.KeyHash[0] = byte(c.Revision)
	p.rev = c.Revision
	p.changes = append(p.changes, c)
	return c
}

// set changes the plane's behaviour.
func (p *plane) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// keyStore remembers what was applied since the last Reset.
type keyStore struct {
	mu      sync.Mutex
	floor   int64
	applied []int64
	onApply func()
}

func (k *keyStore) Reset(floor int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.floor, k.applied = floor, nil
}

func (k *keyStore) Apply(c wire.KeyChange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applied = append(k.applied, c.Revision)
	if k.onApply != nil {
		k.onApply()
	}
}

func (k *keyStore) revs() []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.applied)
}

// spool knows sessions.
type spool struct {
	mu          sync.Mutex
	sessions    map[wire.SessionID]wire.CloseRequest
	republished int
	broken      error
}

func (s *spool) WriteError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

func (s *spool) OpenSession(id wire.SessionID, boot string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[id] = wire.CloseRequest{Session: id, BootID: boot}
	return nil
}

func (s *spool) FinishedSessions(current wire.SessionID) (finished []wire.CloseRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.sessions {
		if id != current {
			finished = append(finished, e)
		}
	}
	return finished
}

func (s *spool) MarkClosed(id wire.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, id)
}

func (s *spool) Republish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.republished++
}

func (s *spool) UsedCapacity() int64 { return 3 }

func (s *spool) EarlierSessions() []wire.EarlierSession { return nil }

func (s *spool) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.republished
}

type bundle struct {
	*plane
	keys     *keyStore
	spool    *spool
	keeper   *Keeper
	changes  []int64
	sessions []wire.SessionID
}

// setup returns a Keeper that is not started, for use within a bubble.
func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{
		plane: &plane{begun: time.Now(), valid: 30 * time.Second, rev: 10, stream: "one", fenced: map[wire.SessionID]bool{}, settled: map[wire.SessionID]int64{}},
		keys:  &keyStore{}, spool: &spool{sessions: map[wire.SessionID]wire.CloseRequest{}},
	}
	hooks := Hooks{
		OnSession: func(s *Session) {
			if b.keeper.Current() != nil {
				t.Error("the session is current before admission knows of it")
			}
			b.sessions = append(b.sessions, s.ID)
		},
		OnChange: func(c wire.KeyChange) { b.changes = append(b.changes, c.Revision) },
		State:    func() Report { return Report{CatalogRev: 4, Running: 2} },
	}
	b.keeper = New(Config{Name: "proxy", Build: "v1", Capacity: 50}, b.plane, b.keys, b.spool, hooks, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return b
}

func (b *bundle) start(t *testing.T) {
	t.Helper()
	b.keeper.Start(t.Context())
	synctest.Wait()
}

// valid reports whether the proxy may admit now.
func (b *bundle) valid() bool { return b.keeper.Ready(context.Background()) == nil }

func TestRegisterAndRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		if b.valid() || b.keeper.Current() != nil {
			t.Error("a session before the registration")
		}
		b.start(t)
		if !b.valid() || b.keys.floor != 10 {
			t.Errorf("valid %v, floor %d; want a session and the floor of its registration", b.valid(), b.keys.floor)
		}
		time.Sleep(time.Minute)
		b.keeper.Stop()
		if diff := cmp.Diff([]string{"register proxy v1 capacity 50", "watch 1"}, b.log); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		for i := 1; i < len(b.renews); i++ {
			if pause := b.renews[i].At - b.renews[i-1].At; pause < 4500*time.Millisecond || pause > 5*time.Second {
				t.Errorf("pause of %v between renewals; want 4.5 s to 5 s", pause)
			}
		}
		if n := len(b.renews); n < 12 {
			t.Errorf("%d renewals in a minute", n)
		}
	})
}

// While the spool cannot be written, no session is registered; afterwards there is
// one.
func TestNoSessionWithoutDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.spool.broken = errors.New("no room")
		b.start(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.valid() || len(b.sessions) != 0 {
			t.Errorf("%d sessions were opened", len(b.sessions))
		}
		b.spool.mu.Lock()
		b.spool.broken = nil
		b.spool.mu.Unlock()
		time.Sleep(2 * timing.RetryInterval)
		synctest.Wait()
		if !b.valid() || len(b.sessions) != 1 {
			t.Errorf("%d sessions were opened; want one, and valid", len(b.sessions))
		}
		b.keeper.Stop()
	})
}

// The deadline counts from the sending of the heartbeat, not from the response.
func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.delay = time.Second
		b.start(t)
		time.Sleep(2 * time.Second) // registered after one second, renewed after two
		b.set(func() { b.cut = true })
		// The renewal was sent a second after the beginning.
		time.Sleep(29*time.Second - time.Nanosecond)
		if !b.valid() {
			t.Error("over too soon")
		}
		time.Sleep(time.Nanosecond)
		if b.valid() {
			t.Error("valid at its deadline")
		}
		b.keeper.Stop()
	})
}

// A lost reply extends nothing.
func TestLostReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.lose = true
		b.start(t)
		time.Sleep(30 * time.Second)
		if b.valid() {
			t.Error("valid without a reply")
		}
		b.set(func() { b.lose = false })
		time.Sleep(time.Second)
		if !b.valid() {
			t.Error("not valid after a reply") // the control plane had never let it expire
		}
		b.keeper.Stop()
	})
}

// A shorter validity takes effect at once: the control plane waits no longer.
func TestShortenedSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.start(t)
		b.set(func() { b.plane.valid = time.Second })
		time.Sleep(5 * time.Second)
		b.set(func() { b.cut = true })
		time.Sleep(time.Second)
		if b.valid() {
			t.Error("valid for longer than the last renewal said")
		}
		b.keeper.Stop()
	})
}

// Sessions that are shorter than the pause between renewals hold all the same.
func TestShortSessionsAreRenewedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.plane.valid = 2 * time.Second
		b.start(t)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if !b.valid() {
				t.Fatalf("not valid after %s", time.Since(b.begun))
			}
		}
		b.keeper.Stop()
	})
}

// Suspension stops the monotonic clock, not the other one.
func TestSuspend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var asleep atomic.Int64
		b.keeper.clock = func() session.Instant {
			return session.Instant{Mono: time.Since(b.begun), Boot: time.Since(b.begun) + time.Duration(asleep.Load())}
		}
		b.start(t)
		time.Sleep(20 * time.Second)
		b.set(func() { b.cut = true })
		asleep.Store(int64(24 * time.Second))
		if !b.valid() {
			t.Error("over too soon")
		}
		asleep.Store(int64(30 * time.Second))
		if b.valid() {
			t.Error("valid after a suspension")
		}
		b.set(func() { b.cut = false })
		time.Sleep(5 * time.Second)
		if !b.valid() {
			t.Error("not renewed after a suspension")
		}
		b.keeper.Stop()
	})
}

func TestRegistrationIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.cut = true
		b.start(t)
		time.Sleep(time.Minute)
		if b.valid() {
			t.Error("a session without control plane")
		}
		b.set(func() { b.cut = false })
		time.Sleep(callTimeout + timing.RetryInterval)
		synctest.Wait()
		if !b.valid() {
			t.Error("none with it")
		}
		b.keeper.Stop()
	})
}

func TestFencedSessionIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.start(t)
		old := b.keeper.Current()
		b.set(func() { b.fenced[1] = true; b.rev = 20; b.delay = time.Millisecond })
		time.Sleep(5*time.Second + 3*time.Millisecond) // renewal, registration, renewal
		synctest.Wait()
		if s := b.keeper.Current(); s == nil || s.ID != 2 || !b.valid() || old.Valid() {
			t.Errorf("session %+v; want the second, and the first one over", s)
		}
		if b.keys.floor != 20 {
			t.Errorf("floor %d; want that of the new registration", b.keys.floor)
		}
		time.Sleep(timing.CloseInterval)
		b.keeper.Stop()
		want := []string{"register proxy v1 capacity 50", "watch 1", "register proxy v1 capacity 50", "watch 2", "closed 1 of " + old.Boot + " with 0"}
		if diff := cmp.Diff(want, b.log); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]wire.SessionID{1, 2}, b.sessions); diff != "" {
			t.Errorf("sessions that admission knows (-want +got):\n%s", diff)
		}
	})
}

// A session that is being opened is not taken for an ended one.
func TestOpeningSessionIsNotClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.busy = func() { time.Sleep(2 * timing.CloseInterval) }
		b.start(t)
		time.Sleep(time.Minute)
		if s := b.keeper.Current(); s == nil || s.ID != 1 || !b.valid() {
			t.Errorf("session %+v; want the first one, valid", s)
		}
		b.keeper.Stop()
	})
}

func TestChangesAreAppliedBeforeTheExtension(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.start(t)
		for range 7 {
			b.change()
		}
		deadline := b.keeper.Current().deadline.Load().Mono
		count := 0
		b.set(func() {
			b.page, b.delay, count = 3, time.Millisecond, len(b.renews)
			b.keys.mu.Lock()
			defer b.keys.mu.Unlock()
			b.keys.onApply = func() {
				if got := b.keeper.Current().deadline.Load().Mono; got > deadline {
					t.Error("extended before everything is applied")
				}
			}
		})
		time.Sleep(5*time.Second + 10*time.Millisecond)
		synctest.Wait()
		b.keeper.Stop()
		if diff := cmp.Diff([]int64{11, 12, 13, 14, 15, 16, 17}, b.keys.revs()); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(b.keys.revs(), b.changes); diff != "" {
			t.Errorf("changes that admission knows (-want +got):\n%s", diff)
		}
		var reported []int64
		for _, r := range b.renews[count:] {
			reported = append(reported, r.Applied)
		}
		// Once more at the end, so that the control plane knows.
		if diff := cmp.Diff([]int64{10, 13, 16, 17}, reported); diff != "" {
			t.Errorf("applied revisions reported (-want +got):\n%s", diff)
		}
	})
}

// acks collects acknowledgements.
type acks struct {
	mu  sync.Mutex
	got []wire.Ack
}

func (a *acks) ack(m wire.Ack) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, m)
}

func (a *acks) all() []wire.Ack {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.got)
}

func TestPushedChangeIsAppliedAndAcknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.start(t)
		first, second := b.change(), b.change()
		var a acks
		b.keeper.Pushed(first, a.ack)
		b.keeper.Pushed(first, a.ack) // doubled
		b.keeper.Pushed(second, a.ack)
		want := []wire.Ack{{V: 1, Session: 1, Revision: 11}, {V: 1, Session: 1, Revision: 11}, {V: 1, Session: 1, Revision: 12}}
		if diff := cmp.Diff(want, a.all()); diff != "" {
			t.Errorf("acknowledgements (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]int64{11, 11, 12}, b.keys.revs()); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
		b.keeper.Stop()
	})
}

// A change whose predecessor is missing is applied at once and acknowledged
// after the renewal that it brings about.
func TestGapIsClosedByARenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.start(t)
		time.Sleep(time.Second)
		b.set(func() { b.delay = time.Millisecond })
		b.change()
		lost := b.change()
		var a acks
		b.keeper.Pushed(lost, a.ack)
		if diff := cmp.Diff([]int64{12}, b.keys.revs()); diff != "" {
			t.Errorf("applied at once (-want +got):\n%s", diff)
		}
		if len(a.all()) != 0 {
			t.Errorf("acknowledged with a gap: %+v", a.all())
		}
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]wire.Ack{{V: 1, Session: 1, Revision: 12}}, a.all()); diff != "" {
			t.Errorf("acknowledged after the renewal (-want +got):\n%s", diff)
		}
		b.keeper.Stop()
	})
}

// A push that comes between two sessions is left to the registration: applied
// to the keys it would be forgotten by the reset, and counted as applied.
func TestPushBetweenSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var a acks
		b.keeper.Pushed(b.change(), a.ack)
		b.start(t)
		if len(a.all()) != 0 || len(b.keys.revs()) != 0 || b.keys.floor != 11 {
			t.Errorf("acks %+v, applied %v, floor %d; want the floor alone", a.all(), b.keys.revs(), b.keys.floor)
		}
		// During the registration of the next session.
		c := b.change()
		b.set(func() { b.fenced[1] = true })
		b.set(func() {
			b.busy = func() { b.keeper.Pushed(c, a.ack) }
			b.rev = 11 // registered before the change
		})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]int64{12}, b.keys.revs()); diff != "" {
			t.Errorf("applied in the new session (-want +got):\n%s", diff)
		}
		if len(a.all()) != 0 {
			t.Errorf("acknowledged by no session: %+v", a.all())
		}
		b.keeper.Stop()
	})
}

func TestNewStreamMakesTheSpoolPublishAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.start(t)
		time.Sleep(10 * time.Second)
		if b.spool.times() != 0 {
			t.Error("published again without reason")
		}
		for _, stream := range []string{"", "two", "two", ""} {
			b.set(func() { b.stream = stream })
			time.Sleep(5 * time.Second)
		}
		if b.spool.times() != 1 {
			t.Errorf("published again %d times; want once", b.spool.times())
		}
		b.keeper.Stop()
	})
}

func TestLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if err := setup(t).keeper.Leave(t.Context()); err != nil {
			t.Errorf("without a session: %v", err)
		}
		b := setup(t)
		b.start(t)
		s := b.keeper.Current()
		b.keeper.Stop()
		if !s.Valid() {
			t.Error("Stop ended the session")
		}
		b.spool.sessions[1] = wire.CloseRequest{Session: 1, BootID: s.Boot, FinalCount: 5}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := b.keeper.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with unsettled events: %v", err)
		}
		cancel()
		if s.Valid() || b.valid() {
			t.Error("valid after leaving")
		}
		time.AfterFunc(time.Second, func() { b.set(func() { b.settled[1] = 5 }) })
		if err := b.keeper.Leave(t.Context()); err != nil {
			t.Errorf("after they were settled: %v", err)
		}
		if len(b.spool.sessions) != 0 {
			t.Error("the session is not closed")
		}
	})
}

func TestBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Begin(3, "boot", time.Second)
		if !s.Valid() || s.ID != 3 || s.Boot != "boot" {
			t.Errorf("got %+v", s)
		}
		time.Sleep(time.Second)
		if s.Valid() {
			t.Error("valid at its deadline")
		}
		if new(Session).Valid() {
			t.Error("the zero session is valid")
		}
	})
}
