package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

var timing = session.DefaultTiming(nil)

var errCut = errors.New("cut off")

// plane is the control plane of one proxy. It records the messages, and responds
// after delay.
type plane struct {
	mu    sync.Mutex
	begun time.Time
	delay time.Duration
	cut   bool // no message gets through
	// undecided means that Postgres is unavailable: each response is that nothing can be decided.
	undecided  bool
	lose       bool // messages arrive, the responses to heartbeats are lost
	rev        int64
	changes    []wire.KeyChange
	page       int // the most changes in one heartbeat response; zero means all
	stream     string
	window     time.Duration
	next       wire.SessionID
	fenced     map[wire.SessionID]bool
	settled    map[wire.SessionID]int64 // how many events of the session are settled
	heartbeats []heartbeat
	// log has the registrations, subscriptions and closings.
	log []string
	// busy, if not nil, is called in SubscribeSession.
	busy func()
}

type heartbeat struct {
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
	if p.undecided {
		return &wire.RegisterResponse{Status: wire.Unavailable}, nil
	}
	p.next++
	p.note("register %s %s capacity %d", r.Name, r.Build, r.Capacity)
	return &wire.RegisterResponse{
		Status:            wire.Done,
		Session:           p.next,
		WindowMS:          p.window.Milliseconds(),
		Revision:          p.rev,
		StreamIncarnation: p.stream,
		ClusterEpoch:      3,
	}, nil
}

func (p *plane) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heartbeats = append(p.heartbeats, heartbeat{time.Since(p.begun), r.Session, r.AppliedRevision})
	if p.undecided {
		return &wire.HeartbeatResponse{Status: wire.Unavailable}, nil
	}
	if p.fenced[r.Session] {
		return &wire.HeartbeatResponse{Status: wire.Fenced}, nil
	}
	reply := &wire.HeartbeatResponse{Status: wire.Done, StreamIncarnation: p.stream}
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
	p.note("subscribe %d", id)
	busy := p.busy
	p.mu.Unlock()
	if busy != nil {
		busy()
	}
	return nil
}

// change commits a key change.
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

// keyStore records the changes that were applied since the last Reset.
type keyStore struct {
	mu      sync.Mutex
	floor   int64
	epoch   int64
	applied []int64
	onApply func()
}

func (k *keyStore) Reset(floor, epoch int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.floor, k.epoch, k.applied = floor, epoch, nil
}

func (*keyStore) RequireMAC(bool) {}

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

// spool is a Usage that records sessions in memory.
type spool struct {
	mu          sync.Mutex
	sessions    map[wire.SessionID]wire.CloseRequest
	republished int
	broken      error
	checkpoint  *checkpoint.Checkpoint
}

func (s *spool) Checkpoint() *checkpoint.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkpoint
}

func (s *spool) Mark() checkpoint.Mark { return checkpoint.Mark{Segment: 1} }

func (s *spool) SaveCheckpoint(c *checkpoint.Checkpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoint = c
	return nil
}

func (s *spool) RemoveCheckpoint() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoint = nil
	return nil
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

func (s *spool) FinishedSessions(open ...wire.SessionID) (finished []wire.CloseRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.sessions {
		if !slices.Contains(open, id) {
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

func (s *spool) HoldUsage(bool) {}

func (s *spool) StartedRequests(wire.SessionID) int64 { return 0 }

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
	changed  *memoryStream
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
		plane:   &plane{begun: time.Now(), window: 20 * time.Second, rev: 10, stream: "one", fenced: map[wire.SessionID]bool{}, settled: map[wire.SessionID]int64{}},
		changed: &memoryStream{incarnation: "a"}, keys: &keyStore{}, spool: &spool{sessions: map[wire.SessionID]wire.CloseRequest{}},
	}
	hooks := Hooks{
		OnSession: func(s *Session) {
			if b.keeper.Current() != nil {
				t.Error("the session is current before OnSession is called")
			}
			b.sessions = append(b.sessions, s.ID)
		},
		OnChange: func(c wire.KeyChange) { b.changes = append(b.changes, c.Revision) },
		State:    func() Report { return Report{CatalogRev: 4, Running: 2} },
	}
	clock := func() session.Instant { // that of the machine is not the bubble's
		since := time.Since(b.begun)
		return session.Instant{Mono: since, Boot: since}
	}
	cfg := Config{Name: "proxy", Build: "v1", Capacity: 50, Stream: b.changed, clock: clock}
	b.keeper = New(cfg, b.plane, b.keys, b.spool, hooks, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return b
}

func (b *bundle) start(t *testing.T) {
	t.Helper()
	b.keeper.Start(t.Context())
	synctest.Wait()
}

// valid reports whether the proxy may admit now.
func (b *bundle) valid() bool { return b.keeper.Ready(context.Background()) == nil }

func TestProxyRegistersAndSendsHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		if b.valid() || b.keeper.Current() != nil {
			t.Error("there is a session before the registration")
		}
		b.start(t)
		if !b.valid() || b.keys.floor != 10 {
			t.Errorf("valid %v, floor %d; want a session and the floor of its registration", b.valid(), b.keys.floor)
		}
		time.Sleep(time.Minute)
		b.keeper.Stop()
		if diff := cmp.Diff([]string{"register proxy v1 capacity 50", "subscribe 1"}, b.log); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		for i := 2; i < len(b.heartbeats); i++ { // the second one makes the proxy fresh at once
			if pause := b.heartbeats[i].At - b.heartbeats[i-1].At; pause < 3*time.Second || pause > 3400*time.Millisecond {
				t.Errorf("%v between two heartbeats; want a sixth of the window and up to a tenth less", pause)
			}
		}
		if n := len(b.heartbeats); n < 18 {
			t.Errorf("%d heartbeats in a minute; want at least 18", n)
		}
	})
}

// The proxy registers as soon as the spool can be written again.
func TestNoSessionWhileTheSpoolCannotBeWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.spool.broken = errors.New("disk full")
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

// The last beat that the proxy reads back is the one that it has sent at the start.
func TestSessionIsValidForTheWindowAfterTheSendingOfABeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.start(t)
		b.changed.separate(true)
		time.Sleep(20*time.Second - time.Nanosecond)
		if !b.valid() {
			t.Error("the session ended before its window")
		}
		time.Sleep(time.Nanosecond)
		if b.valid() || b.keeper.Current() == nil {
			t.Error("the session is valid after the window, or has ended: control planes answer")
		}
		b.changed.separate(false)
		time.Sleep(2 * time.Second)
		if !b.valid() {
			t.Error("the session is not valid although the proxy reads the stream again")
		}
		b.keeper.Stop()
	})
}

// While no control plane answers, the proxy serves, says so, and does not end its session.
func TestSessionOutlivesTheControlPlanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, written := setup(t), &strings.Builder{}
		b.keeper.log = slog.New(slog.NewTextHandler(written, nil))
		b.start(t)
		b.set(func() { b.cut = true })
		time.Sleep(19 * time.Second)
		if b.keeper.Alone() {
			t.Error("alone before the window has passed without an answer")
		}
		time.Sleep(time.Hour)
		if !b.valid() || !b.keeper.Alone() {
			t.Errorf("valid %t, alone %t; want both", b.valid(), b.keeper.Alone())
		}
		b.set(func() { b.cut = false })
		time.Sleep(10 * time.Second)
		if !b.valid() || b.keeper.Alone() || len(b.sessions) != 1 {
			t.Errorf("valid %t, alone %t, %d sessions; want the same session, and an answer", b.valid(), b.keeper.Alone(), len(b.sessions))
		}
		b.keeper.Stop()
		if n := strings.Count(written.String(), "no control plane answers"); n != 1 {
			t.Errorf("it is logged %d times that no control plane answers; want once", n)
		}
	})
}

// Whoever looks for the cause of an outage finds the moment at which the proxy
// stopped serving, once.
func TestLapseIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, written := setup(t), &strings.Builder{}
		b.keeper.log = slog.New(slog.NewTextHandler(written, nil))
		count := func() int {
			b.keeper.mu.Lock()
			defer b.keeper.mu.Unlock()
			return strings.Count(written.String(), "all requests get 503")
		}
		b.start(t)
		b.changed.separate(true)
		time.Sleep(19 * time.Second)
		if n := count(); n != 0 {
			t.Errorf("the lapse is logged %d times before the end of the window", n)
		}
		time.Sleep(5 * time.Minute)
		if n := count(); n != 1 {
			t.Errorf("the lapse is logged %d times; want once", n)
		}
		b.keeper.Stop()
	})
}

// The window is shorter than the usual time between heartbeats.
func TestSessionsWithAShortWindowStayValid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.window = 2 * time.Second
		b.start(t)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if !b.valid() {
				t.Fatalf("the session is not valid after %s", time.Since(b.begun))
			}
		}
		b.keeper.Stop()
	})
}

// The monotonic clock stops while the machine is suspended; the boot-time clock does not.
func TestSessionLapsesWhileTheMachineIsSuspended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var asleep atomic.Int64
		b.keeper.clock = func() session.Instant {
			return session.Instant{Mono: time.Since(b.begun), Boot: time.Since(b.begun) + time.Duration(asleep.Load())}
		}
		b.start(t)
		time.Sleep(21 * time.Second) // the last beat in the stream is a second old
		asleep.Store(int64(18 * time.Second))
		if !b.valid() {
			t.Error("the session ended before its window")
		}
		asleep.Store(int64(20 * time.Second))
		if b.valid() {
			t.Error("the session is valid although the window has passed during the suspension")
		}
		time.Sleep(5 * time.Second)
		if !b.valid() {
			t.Error("there is no valid session after the suspension")
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
			t.Error("there is a session although no message reached the control plane")
		}
		b.set(func() { b.cut = false })
		time.Sleep(callTimeout + timing.RetryInterval)
		synctest.Wait()
		if !b.valid() {
			t.Error("there is no session although the control plane can be reached")
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
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := b.keeper.Current(); s == nil || s.ID != 2 || !b.valid() || old.Valid() {
			t.Errorf("session %+v; want the second, and the first one ended", s)
		}
		if b.keys.floor != 20 {
			t.Errorf("floor %d; want that of the new registration", b.keys.floor)
		}
		time.Sleep(timing.CloseInterval)
		b.keeper.Stop()
		want := []string{"register proxy v1 capacity 50", "subscribe 1", "register proxy v1 capacity 50", "subscribe 2", "closed 1 of " + old.Boot + " with 0"}
		if diff := cmp.Diff(want, b.log); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]wire.SessionID{1, 2}, b.sessions); diff != "" {
			t.Errorf("sessions passed to OnSession (-want +got):\n%s", diff)
		}
	})
}

// Opening takes longer than the time between two attempts to close ended sessions.
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

// A proxy that has lapsed serves again when it has applied every change that Postgres has.
func TestChangesAreAppliedBeforeTheLapseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.start(t)
		b.changed.separate(true)
		b.set(func() { b.cut = true })
		time.Sleep(30 * time.Second)
		for range 7 {
			b.change()
		}
		count := 0
		b.set(func() {
			b.page, b.delay, count = 3, time.Millisecond, len(b.heartbeats)
			b.keys.mu.Lock()
			defer b.keys.mu.Unlock()
			b.keys.onApply = func() {
				if b.valid() {
					t.Error("the session is valid before all changes are applied")
				}
			}
		})
		b.changed.separate(false)
		time.Sleep(10 * time.Second)
		if b.valid() {
			t.Error("the session is valid before Postgres was read")
		}
		b.set(func() { b.cut = false })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !b.valid() {
			t.Error("the session is not valid although all changes are applied")
		}
		b.keeper.Stop()
		if diff := cmp.Diff([]int64{11, 12, 13, 14, 15, 16, 17}, b.keys.revs()); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(b.keys.revs(), b.changes); diff != "" {
			t.Errorf("changes passed to OnChange (-want +got):\n%s", diff)
		}
		var reported []int64
		for _, r := range b.heartbeats[count:] {
			reported = append(reported, r.Applied)
		}
		// The last heartbeat is sent at once, to report the last changes.
		if diff := cmp.Diff([]int64{10, 13, 16, 17}, reported[:min(4, len(reported))]); diff != "" {
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
		b.keeper.Pushed(first, a.ack) // the message is duplicated
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

// A change that arrives before an earlier one is applied at once. It is acknowledged
// after a heartbeat, sent at once, has fetched the earlier one.
func TestHeartbeatFetchesMissingChanges(t *testing.T) {
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
			t.Errorf("acknowledged after the heartbeat (-want +got):\n%s", diff)
		}
		b.keeper.Stop()
	})
}

// The registration, or the first heartbeat of the new session, includes the change. If
// the push were applied, the reset of the keys would undo it, but it would count as
// applied.
func TestPushBetweenSessionsIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var a acks
		b.keeper.Pushed(b.change(), a.ack)
		b.start(t)
		if len(a.all()) != 0 || len(b.keys.revs()) != 0 || b.keys.floor != 11 {
			t.Errorf("acks %+v, applied %v, floor %d; want the floor alone", a.all(), b.keys.revs(), b.keys.floor)
		}
		// A change is pushed while the next session is being opened.
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
			t.Errorf("the ignored push was acknowledged: %+v", a.all())
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
			t.Error("usage was published again although the stream is the same")
		}
		for _, stream := range []string{"", "two", "two", ""} {
			b.set(func() { b.stream = stream })
			time.Sleep(5 * time.Second)
		}
		if b.spool.times() != 1 {
			t.Errorf("usage was published again %d times; want once", b.spool.times())
		}
		b.keeper.Stop()
	})
}

func TestLeaveClosesTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if err := setup(t).keeper.Leave(t.Context()); err != nil {
			t.Errorf("leave without a session: %v", err)
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
			t.Errorf("leave with unsettled events: got %v; want %v", err, context.DeadlineExceeded)
		}
		cancel()
		if s.Valid() || b.valid() {
			t.Error("the session is valid after Leave")
		}
		time.AfterFunc(time.Second, func() { b.set(func() { b.settled[1] = 5 }) })
		if err := b.keeper.Leave(t.Context()); err != nil {
			t.Errorf("leave after the events were settled: %v", err)
		}
		if len(b.spool.sessions) != 0 {
			t.Error("the session is not closed")
		}
	})
}

func TestBeginReturnsAValidSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Begin(3, "boot", time.Second)
		if !s.Valid() || s.ID != 3 || s.Boot != "boot" {
			t.Errorf("got %+v", s)
		}
		time.Sleep(time.Second)
		if s.Valid() {
			t.Error("the session is valid at its end")
		}
		if new(Session).Valid() {
			t.Error("the zero session is valid")
		}
	})
}
