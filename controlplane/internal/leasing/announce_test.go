package leasing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// pusher is a Pusher whose proxies answer as a test says: acks is called for
// each push, from a goroutine of its own.
type pusher struct {
	proxies func(push int, ack func(wire.Ack))
	fails   error
	pushes  int
	stopped int
}

func (p *pusher) Recall(wire.SessionID, wire.Recall) error { return nil }

func (p *pusher) RecordRevocation(context.Context, wire.KeyChange) error { return nil }

func (p *pusher) AskReserved(context.Context, wire.ReservedRequest, func(wire.ReservedResponse)) (func(), error) {
	return nil, errPush
}

func (p *pusher) Push(_ context.Context, _ wire.KeyChange, acks func(wire.Ack)) (func(), error) {
	if p.fails != nil {
		return nil, p.fails
	}
	p.pushes++
	if p.proxies != nil {
		go p.proxies(p.pushes, acks)
	}
	return func() { p.stopped++ }, nil
}

var errPush = errors.New("the bus fails")

func TestAnnounce(t *testing.T) {
	t.Parallel()
	const rev, anyPushes = 7, -1
	valid := Config{}.withDefaults()
	two := []session.PendingSession{{Session: 1, Remaining: 10 * time.Second}, {Session: 2, Remaining: 20 * time.Second}}
	tests := []struct {
		name string
		// given are the sessions at first; later is what becomes of them after a while.
		given  []session.PendingSession
		later  func(m *memory)
		pusher pusher
		slow   time.Duration
		limit  time.Duration
		want   propagation.Confirmation
		after  time.Duration
		pushes int
	}{
		{
			name: "no session", want: propagation.Confirmation{Effective: true}, pushes: 1,
		},
		{
			name: "both acknowledge", given: two,
			pusher: pusher{proxies: func(_ int, ack func(wire.Ack)) {
				time.Sleep(3 * time.Millisecond)
				ack(wire.Ack{Session: 1, Revision: rev})
				ack(wire.Ack{Session: 1, Revision: rev}) // twice is once
				ack(wire.Ack{Session: 3, Revision: rev}) // not waited for
				time.Sleep(3 * time.Millisecond)
				ack(wire.Ack{Session: 2, Revision: rev + 1})
			}},
			want: propagation.Confirmation{Effective: true, ConfirmedBy: 2}, after: 6 * time.Millisecond, pushes: 1,
		},
		{
			name: "the first push is lost", given: two,
			pusher: pusher{proxies: func(push int, ack func(wire.Ack)) {
				ack(wire.Ack{Session: wire.SessionID(push), Revision: rev})
			}},
			want: propagation.Confirmation{Effective: true, ConfirmedBy: 2}, after: pushPause, pushes: 2,
		},
		{
			name: "an acknowledgement between two pushes", given: two,
			pusher: pusher{proxies: func(push int, ack func(wire.Ack)) {
				if push == 1 {
					ack(wire.Ack{Session: 1, Revision: rev})
					time.Sleep(pushPause + time.Millisecond)
					ack(wire.Ack{Session: 2, Revision: rev})
				}
			}},
			want: propagation.Confirmation{Effective: true, ConfirmedBy: 2}, after: pushPause + time.Millisecond, pushes: 2,
		},
		{
			name: "of an older revision", given: two[:1], limit: 1100 * time.Millisecond,
			pusher: pusher{proxies: func(_ int, ack func(wire.Ack)) { ack(wire.Ack{Session: 1, Revision: rev - 1}) }},
			want:   propagation.Confirmation{Bound: 8900*time.Millisecond + valid.margin(), Waiting: []wire.SessionID{1}}, after: 1100 * time.Millisecond, pushes: 5,
		},
		{
			name: "one is silent until it expires", given: two,
			pusher: pusher{proxies: func(_ int, ack func(wire.Ack)) { ack(wire.Ack{Session: 2, Revision: rev}) }},
			want:   propagation.Confirmation{Effective: true, ConfirmedBy: 1}, after: 10*time.Second + valid.margin(), pushes: 49,
		},
		{
			name: "one renews instead", given: two,
			later:  func(m *memory) { m.pending = m.pending[1:] },
			pusher: pusher{proxies: func(_ int, ack func(wire.Ack)) { ack(wire.Ack{Session: 2, Revision: rev}) }},
			want:   propagation.Confirmation{Effective: true, ConfirmedBy: 2}, after: time.Second, pushes: 5,
		},
		{
			name: "one is fenced, which is no confirmation", given: []session.PendingSession{{Session: 1, Remaining: time.Second / 2}},
			later: func(m *memory) { m.pending = nil },
			want:  propagation.Confirmation{Effective: true}, after: time.Second, pushes: 5,
		},
		{
			name: "a renewal with the old revision moves no bound", given: two[:1], limit: 4900 * time.Millisecond,
			later: func(m *memory) { m.pending = []session.PendingSession{{Session: 1, Remaining: 30 * time.Second}} },
			want:  propagation.Confirmation{Bound: 5100*time.Millisecond + valid.margin(), Waiting: []wire.SessionID{1}}, after: 4900 * time.Millisecond, pushes: 20,
		},
		{
			name: "expired before", given: []session.PendingSession{{Session: 1, Remaining: -valid.margin()}}, want: propagation.Confirmation{Effective: true}, pushes: 1,
		},
		{
			name: "within its margin", given: []session.PendingSession{{Session: 1, Remaining: -time.Second}},
			want: propagation.Confirmation{Effective: true}, after: valid.margin() - time.Second, pushes: 5,
		},
		{
			name: "a slow reading ends no session early", given: []session.PendingSession{{Session: 1, Remaining: time.Second}}, slow: 4 * time.Second,
			want: propagation.Confirmation{Effective: true}, after: 5*time.Second + valid.margin(), pushes: 13,
		},
		{
			name: "its own time-out", given: []session.PendingSession{{Session: 1, Remaining: time.Hour}},
			want:  propagation.Confirmation{Bound: time.Hour + valid.margin() - valid.ConfirmTimeout, Waiting: []wire.SessionID{1}},
			after: valid.ConfirmTimeout, pushes: anyPushes,
		},
		{
			name: "the time is over before the sessions are known", given: two, slow: time.Second, limit: time.Millisecond,
			want: propagation.Confirmation{Bound: valid.Valid + valid.margin()}, after: time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newMemory(0, 0)
				store.pending, store.slow = tt.given, tt.slow
				s := newService(store, &tt.pusher)
				if tt.later != nil {
					time.AfterFunc(time.Second-time.Millisecond, func() {
						store.mu.Lock()
						defer store.mu.Unlock()
						tt.later(store)
					})
				}
				ctx := t.Context()
				if tt.limit > 0 {
					limited, cancel := context.WithTimeout(ctx, tt.limit)
					defer cancel()
					ctx = limited
				}
				start := time.Now()
				got, err := s.Announce(ctx, wire.KeyChange{Revision: rev})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("confirmation (-want +got):\n%s", diff)
				}
				// What is waited for longer than a pause is looked at after each pause.
				if took := time.Since(start); took < tt.after || took >= tt.after+pushPause {
					t.Errorf("took %v; want %v", took, tt.after)
				}
				if tt.pushes == anyPushes { // the end of the time falls together with a push
					tt.pushes = tt.pusher.pushes
				}
				if tt.pusher.pushes != tt.pushes || tt.pusher.stopped != tt.pushes {
					t.Errorf("%d pushes, %d of them stopped; want %d", tt.pusher.pushes, tt.pusher.stopped, tt.pushes)
				}
				synctest.Wait()
			})
		})
	}
}

// TestAnnounceFails: when proxies may not have been told, that is an error.
func TestAnnounceFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(0, 0)
		store.pending = []session.PendingSession{{Session: 1, Remaining: time.Second}}
		if _, err := newService(store, &pusher{fails: errPush}).Announce(t.Context(), wire.KeyChange{}); !errors.Is(err, errPush) {
			t.Errorf("got %v; want %v", err, errPush)
		}
		store.fails = errStore
		if _, err := newService(store, &pusher{}).Announce(t.Context(), wire.KeyChange{}); !errors.Is(err, errStore) {
			t.Errorf("got %v; want %v", err, errStore)
		}
	})
}

// keeper is a Pusher that records a revocation at the second attempt, when the
// store has lost it.
type keeper struct {
	pusher
	store *memory
	tries int
}

func (k *keeper) RecordRevocation(context.Context, wire.KeyChange) error {
	if k.tries++; k.tries == 1 {
		return errPush
	}
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	k.store.lost = true
	return nil
}

// Whether Postgres still has a revocation is read after it was recorded, since
// Postgres may have lost it before that.
func TestLostRevocationIsNotConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(0, 0)
		k := &keeper{store: store}
		got, err := newService(store, k).Announce(t.Context(), wire.KeyChange{Revision: 7, Kind: wire.KeyRevoked})
		if !errors.Is(err, errGone) || got.Effective {
			t.Errorf("got %+v, %v; want %v", got, err, errGone)
		}
	})
}
