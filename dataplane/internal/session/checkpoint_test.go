package session

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// memoryStream is the stream of changes of one proxy.
type memoryStream struct {
	mu          sync.Mutex
	incarnation string
	messages    []message
	// separated means that the proxy cannot reach the stream.
	separated bool
}

func (s *memoryStream) separate(separated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.separated = separated
}

// message is a heartbeat or a change.
type message struct {
	beat   *wire.Beat
	change wire.StreamChange
}

func (*memoryStream) Follow(func(wire.StreamChange)) error { return nil }

func (s *memoryStream) Open(context.Context) (Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.separated {
		return nil, errCut
	}
	return s, nil
}

func (s *memoryStream) Incarnation() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.incarnation
}

func (s *memoryStream) last() (wire.Beat, uint64) {
	for i, m := range slices.Backward(s.messages) {
		if m.beat != nil {
			return *m.beat, uint64(i + 1)
		}
	}
	return wire.Beat{}, 0
}

func (s *memoryStream) PublishBeat(_ context.Context, b *wire.Beat) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.separated {
		return errCut
	}
	if _, last := s.last(); b.Previous != 0 && b.Previous != last {
		return ErrBeatRefused
	}
	s.messages = append(s.messages, message{beat: b})
	return nil
}

func (s *memoryStream) LastBeat(context.Context) (wire.Beat, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, sequence := s.last()
	return b, sequence, nil
}

func (s *memoryStream) NextChange(_ context.Context, after uint64, direct bool) (wire.StreamChange, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := after; i < uint64(len(s.messages)); i++ {
		if m := s.messages[i]; m.beat == nil && (!direct || m.change.Change.Revision == 0) {
			return m.change, i + 1, nil
		}
	}
	return wire.StreamChange{}, 0, nil
}

// append appends the revocation of a key; with revision 0 it is that of an operator.
func (s *memoryStream) append(id string, revision int64) {
	s.appendChange(id, wire.KeyChange{V: 1, Kind: wire.KeyRevoked, Revision: revision})
}

func (s *memoryStream) appendChange(id string, c wire.KeyChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, message{change: wire.StreamChange{V: 1, ID: id, Change: c}})
}

// change replaces the messages.
func (s *memoryStream) change(incarnation string, messages func([]message) []message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.incarnation, s.messages = incarnation, messages(s.messages)
}

// machine is what the processes of one proxy share.
type machine struct {
	*plane
	spool   *spool
	stream  *memoryStream
	resumed []map[string][]checkpoint.IdleUnits
}

func newMachine() *machine {
	return &machine{
		plane: &plane{
			begun: time.Now(), rev: 10, stream: "one", window: 20 * time.Second,
			fenced: map[wire.SessionID]bool{}, settled: map[wire.SessionID]int64{},
		},
		spool: &spool{sessions: map[wire.SessionID]wire.CloseRequest{}}, stream: &memoryStream{incarnation: "a"},
	}
}

// process starts a process with idle units of one account.
func (m *machine) process(t *testing.T) (*Keeper, *keyStore) {
	t.Helper()
	keys := &keyStore{}
	clock := func() session.Instant { // that of the machine is not the bubble's
		since := time.Since(m.begun)
		return session.Instant{Mono: since, Boot: since}
	}
	k := New(Config{Name: "proxy", Stream: m.stream, clock: clock}, m.plane, keys, m.spool, Hooks{
		OnSession: func(*Session) {},
		OnResume:  func(_ *Session, idle map[string][]checkpoint.IdleUnits) { m.resumed = append(m.resumed, idle) },
		Idle: func() map[string][]checkpoint.IdleUnits {
			return map[string][]checkpoint.IdleUnits{"account": {{Pool: 7, Units: 5}}}
		},
		OnChange: func(wire.KeyChange) {},
		State:    func() Report { return Report{} },
	}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	k.Start(t.Context())
	t.Cleanup(k.Stop)
	return k, keys
}

// endAlone plays a process until no control plane responds and it has a checkpoint, and ends it.
func (m *machine) endAlone(t *testing.T) *Keeper {
	t.Helper()
	k, _ := m.process(t)
	time.Sleep(time.Minute)
	m.set(func() { m.cut = true })
	time.Sleep(time.Minute)
	if m.spool.Checkpoint() == nil {
		t.Fatal("no checkpoint although no control plane responds")
	}
	k.Stop()
	return k
}

func (k *keyStore) appliedNow() []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.applied)
}

func TestProcessContinuesTheSessionOfTheEarlierOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.stream.append("long ago", 0)
		first := m.endAlone(t)
		m.stream.append("by an operator", 0)
		m.stream.append("by a control plane", 50)
		k, keys := m.process(t)
		if k.Ready(t.Context()) == nil {
			t.Error("ready before the registration has failed")
		}
		time.Sleep(10 * time.Second)
		s := k.Current()
		if s == nil || !s.Valid() || s.ID != 1 || s.Boot != first.boot {
			t.Fatalf("session: %+v; want that of the earlier process", s)
		}
		if keys.floor != 10 || keys.epoch != 3 {
			t.Errorf("floor %d, epoch %d; want 10, 3", keys.floor, keys.epoch)
		}
		if got := keys.appliedNow(); !slices.Equal(got, []int64{0, 0, 50}) {
			t.Errorf("changes %v are applied; want both revocations by operators and change 50", got)
		}
		if len(m.resumed) != 1 || m.resumed[0]["account"][0].Units != 5 {
			t.Errorf("idle units: %v", m.resumed)
		}
		time.Sleep(time.Minute)
		if !s.Valid() || m.spool.Checkpoint() == nil {
			t.Error("the session lapses, or has no checkpoint for a third process")
		}
		m.set(func() { m.cut = false })
		time.Sleep(10 * time.Second)
		if now := k.Current(); now == nil || now.ID != 2 || !now.Valid() || s.Valid() {
			t.Errorf("session: %+v; want a new one, and the earlier one invalid", now)
		}
		if m.spool.Checkpoint() != nil {
			t.Error("the checkpoint is there although a control plane responds")
		}
		if !slices.Contains(m.log, "closed 1 of "+first.boot+" with 0") {
			t.Errorf("messages %q; want the earlier session closed", m.log)
		}
	})
}

// Control planes respond that they cannot decide. The proxy acts on none of that, so its checkpoint stays.
func TestProcessContinuesTheSessionWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		first, _ := m.process(t)
		time.Sleep(time.Minute)
		m.set(func() { m.undecided = true })
		time.Sleep(30 * time.Second)
		missing := 0
		for range 300 {
			if time.Sleep(100 * time.Millisecond); m.spool.Checkpoint() == nil {
				missing++
			}
		}
		if missing > 0 {
			t.Errorf("no checkpoint at %d of 300 moments", missing)
		}
		first.Stop()
		k, _ := m.process(t)
		time.Sleep(10 * time.Second)
		if s := k.Current(); s == nil || !s.Valid() || s.ID != 1 {
			t.Fatalf("session: %+v; want that of the earlier process", s)
		}
		if m.spool.Checkpoint() == nil {
			t.Error("no checkpoint for a third process")
		}
		m.set(func() {
			if n := len(slices.DeleteFunc(slices.Clone(m.log), func(line string) bool { return line != "subscribe 1" })); n != 2 {
				t.Errorf("messages %q; want the recalls of the session subscribed to by both processes", m.log)
			}
		})
	})
}

// Control planes count on it that no proxy holds idle units of an account from before a change that may have reduced its
// balance. The earlier process would have returned them.
func TestContinuedSessionLeavesOutUnitsThatAChangeMayHaveReduced(t *testing.T) {
	t.Parallel()
	for kind, want := range map[wire.KeyChangeKind]int{wire.AccountUpdated: 0, wire.KeyUpdated: 0, wire.KeyRevoked: 1} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.endAlone(t)
				m.stream.appendChange("since", wire.KeyChange{V: 1, Kind: kind, Revision: 50, Account: "account"})
				k, _ := m.process(t)
				time.Sleep(10 * time.Second)
				if s := k.Current(); s == nil || !s.Valid() {
					t.Fatal("the session is not continued")
				}
				if len(m.resumed) != 1 || len(m.resumed[0]) != want {
					t.Errorf("idle units: %v; want those of %d accounts", m.resumed, want)
				}
			})
		})
	}
}

// Sequence numbers start again in a stream that was created again.
func TestChangesOfANewStreamAreReadAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		k, _ := m.process(t)
		time.Sleep(10 * time.Minute)
		m.stream.change("b", func([]message) []message { return nil })
		time.Sleep(7 * time.Second) // the proxy is fresh again after one response of the control plane
		m.set(func() { m.cut = true })
		time.Sleep(15 * time.Second)
		if m.spool.Checkpoint() == nil {
			t.Fatal("no checkpoint")
		}
		k.Stop()
		m.stream.append("by a control plane", 50)
		k, keys := m.process(t)
		time.Sleep(10 * time.Second)
		if s := k.Current(); s == nil || !s.Valid() {
			t.Fatal("the session is not continued")
		}
		if got := keys.appliedNow(); !slices.Contains(got, 50) {
			t.Errorf("changes %v are applied; want 50, too", got)
		}
	})
}

func TestSessionIsNotContinuedIfTheStreamHasLostTheBeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.endAlone(t)
		m.stream.change("a", func(all []message) []message { return all[:len(all)-2] })
		k, _ := m.process(t)
		time.Sleep(time.Minute)
		if s := k.Current(); s != nil {
			t.Errorf("session: %+v; want none", s)
		}
		m.set(func() { m.cut = false })
		time.Sleep(15 * time.Second)
		if s := k.Current(); s == nil || s.ID != 2 || !s.Valid() {
			t.Errorf("session: %+v; want a new one", s)
		}
	})
}

func TestContinuedSessionEndsAtOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(m *machine, k *Keeper){
		"when a control plane recalls its units": func(_ *machine, k *Keeper) { k.EndResumed() },
		"when the stream has its end": func(m *machine, _ *Keeper) {
			m.stream.change("a", func(all []message) []message {
				return append(all, message{change: wire.StreamChange{V: 1, ID: "end", Ended: 1}})
			})
		},
		"when the stream has a later cluster epoch": func(m *machine, _ *Keeper) {
			m.stream.change("a", func(all []message) []message {
				return append(all, message{change: wire.StreamChange{V: 1, ID: "epoch", Epoch: 4}})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.endAlone(t)
				k, _ := m.process(t)
				time.Sleep(10 * time.Second)
				s := k.Current()
				if s == nil || !s.Valid() {
					t.Fatal("the session is not continued")
				}
				end(m, k)
				time.Sleep(6 * time.Second)
				if s.Valid() || k.Current() != nil || m.spool.Checkpoint() != nil {
					t.Error("the session goes on, or has a checkpoint")
				}
			})
		})
	}
}

func TestCheckpointIsRemovedWhenAControlPlaneIsHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		k, _ := m.process(t)
		time.Sleep(time.Minute)
		m.set(func() { m.cut = true })
		time.Sleep(time.Minute)
		if m.spool.Checkpoint() == nil {
			t.Fatal("no checkpoint")
		}
		k.Pushed(m.plane.change(), func(wire.Ack) {
			if m.spool.Checkpoint() != nil {
				t.Error("a change is acknowledged while the checkpoint is there")
			}
		})
		if m.spool.Checkpoint() != nil {
			t.Error("the checkpoint is there after a pushed change")
		}
		time.Sleep(10 * time.Second) // the next one knows the change
		if c := m.spool.Checkpoint(); c == nil || c.Known.Applied != 11 {
			t.Errorf("checkpoint: %+v; want one that knows the change", c)
		}
	})
}
