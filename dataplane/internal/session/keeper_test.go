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
	valid time.Duration
	delay time.Duration
	cut   bool // no message gets through
	// undecided means that Postgres is away: each response is that nothing can be decided.
	undecided  bool
	lose       bool // messages arrive, the responses to heartbeats are lost
	rev        int64
	changes    []wire.KeyChange
	page       int // the most changes in one heartbeat response; zero means all
	stream     string
	bucket     bool
	window     time.Duration // of freshness; zero: sessions need none
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
	return &wire.RegisterResponse{Status: wire.Done, Session: p.next, ValidMS: p.valid.Milliseconds(), Revision: p.rev, StreamIncarnation: p.stream, ClusterEpoch: 3, KeyBucket: p.bucket, FreshnessMS: p.window.Milliseconds()}, nil
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
	reply := &wire.HeartbeatResponse{Status: wire.Done, ValidMS: p.valid.Milliseconds(), StreamIncarnation: p.stream, KeyBucket: p.bucket}
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
	bucket  bool
	onApply func()
}

func (k *keyStore) Reset(floor, epoch int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.floor, k.epoch, k.applied = floor, epoch, nil
}

func (k *keyStore) UseBucket(kept bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bucket = kept
}

func (k *keyStore) uses() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bucket
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
				t.Error("the session is current before OnSession is called")
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
		for i := 1; i < len(b.heartbeats); i++ {
			if pause := b.heartbeats[i].At - b.heartbeats[i-1].At; pause < 4500*time.Millisecond || pause > 5*time.Second {
				t.Errorf("%v between two heartbeats; want 4.5 s to 5 s", pause)
			}
		}
		if n := len(b.heartbeats); n < 12 {
			t.Errorf("%d heartbeats in a minute; want at least 12", n)
		}
	})
}

// Control planes say in each response whether they keep the bucket of key records.
// While none responds, the last one counts.
func TestKeysLearnWhetherThereIsABucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.bucket = true
		b.start(t)
		if !b.keys.uses() || b.keys.epoch != 3 {
			t.Errorf("after the registration: bucket %t, cluster epoch %d; want true and 3", b.keys.uses(), b.keys.epoch)
		}
		for _, kept := range []bool{false, true} {
			b.set(func() { b.bucket = kept })
			time.Sleep(6 * time.Second)
			if b.keys.uses() != kept {
				t.Errorf("after a heartbeat: bucket %t; want %t", b.keys.uses(), kept)
			}
		}
		b.set(func() { b.bucket, b.cut = false, true })
		time.Sleep(time.Minute)
		if !b.keys.uses() {
			t.Error("without a response the bucket is not used any more")
		}
		b.keeper.Stop()
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

func TestDeadlineCountsFromTheSendingOfTheHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.delay = time.Second
		b.start(t)
		time.Sleep(2 * time.Second) // the session was registered after one second and extended after two
		b.set(func() { b.cut = true })
		// The heartbeat was sent one second after the start.
		time.Sleep(29*time.Second - time.Nanosecond)
		if !b.valid() {
			t.Error("the session ended before its deadline")
		}
		time.Sleep(time.Nanosecond)
		if b.valid() {
			t.Error("the session is valid at its deadline")
		}
		b.keeper.Stop()
	})
}

func TestLostResponseDoesNotExtendTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.lose = true
		b.start(t)
		time.Sleep(30 * time.Second)
		if b.valid() {
			t.Error("the session is valid at its deadline without a response to a heartbeat")
		}
		b.set(func() { b.lose = false })
		time.Sleep(time.Second)
		if !b.valid() {
			t.Error("the session is not valid after a response") // the control plane had received its heartbeats
		}
		b.keeper.Stop()
	})
}

// Whoever looks for the cause of an outage finds the moment at which the proxy
// stopped serving, once, and why a new session did not begin.
func TestEndOfSessionsIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, written := setup(t), &strings.Builder{}
		b.keeper.log = slog.New(slog.NewTextHandler(written, nil))
		count := func(text string) int {
			b.keeper.mu.Lock()
			defer b.keeper.mu.Unlock()
			return strings.Count(written.String(), text)
		}
		b.lose = true
		b.start(t)
		time.Sleep(29 * time.Second)
		if n := count("session expired"); n != 0 {
			t.Errorf("the end is logged %d times before the deadline", n)
		}
		time.Sleep(5 * time.Minute)
		if n := count("session expired"); n != 1 {
			t.Errorf("the end of the session is logged %d times; want once", n)
		}
		b.keeper.Stop()
	})
}

// The control plane does not wait for the longer validity any more.
func TestShorterValidityTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.start(t)
		b.set(func() { b.plane.valid = time.Second })
		time.Sleep(5 * time.Second)
		b.set(func() { b.cut = true })
		time.Sleep(time.Second)
		if b.valid() {
			t.Error("the session is valid for longer than the last heartbeat response allows")
		}
		b.keeper.Stop()
	})
}

// The sessions are shorter than the usual time between heartbeats.
func TestShortSessionsAreExtendedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.plane.valid = 2 * time.Second
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
func TestSessionExpiresWhileTheMachineIsSuspended(t *testing.T) {
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
			t.Error("the session ended before its deadline")
		}
		asleep.Store(int64(30 * time.Second))
		if b.valid() {
			t.Error("the session is valid although it expired during the suspension")
		}
		b.set(func() { b.cut = false })
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
		time.Sleep(5*time.Second + 3*time.Millisecond) // heartbeat, registration, heartbeat
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
			b.page, b.delay, count = 3, time.Millisecond, len(b.heartbeats)
			b.keys.mu.Lock()
			defer b.keys.mu.Unlock()
			b.keys.onApply = func() {
				if got := b.keeper.Current().deadline.Load().Mono; got > deadline {
					t.Error("the session was extended before all changes were applied")
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
			t.Errorf("changes passed to OnChange (-want +got):\n%s", diff)
		}
		var reported []int64
		for _, r := range b.heartbeats[count:] {
			reported = append(reported, r.Applied)
		}
		// The last heartbeat is sent at once, to report the last changes.
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
			t.Error("the session is valid at its deadline")
		}
		if new(Session).Valid() {
			t.Error("the zero session is valid")
		}
	})
}
