package leasing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

// fakePusher is a Pusher. It calls proxies for each push, in a new goroutine.
type fakePusher struct {
	proxies func(push int, ack func(wire.Ack))
	// forger is the proxy that sends all acknowledgements; empty for that of the session.
	forger  string
	fails   error
	pushes  int
	stopped int
	// recorded has the hashes whose revocation was recorded.
	recorded []apikey.Hash
	// check answers a check of a provider.
	check func(q checkwire.Request, answer func(string, checkwire.Response))
}

func (p *fakePusher) Connected() bool { return true }

func (p *fakePusher) Recall(wire.SessionID, wire.Recall) error { return nil }

func (p *fakePusher) RecordRevocation(_ context.Context, c wire.KeyChange) error {
	p.recorded = append(p.recorded, c.KeyHash)
	return nil
}

func (p *fakePusher) AskReserved(context.Context, wire.ReservedRequest, func(string, wire.ReservedResponse)) (func(), error) {
	return nil, errPush
}

func (p *fakePusher) AskCheck(_ context.Context, q checkwire.Request, answers func(string, checkwire.Response)) (func(), error) {
	if p.check != nil {
		go p.check(q, answers)
	}
	return func() {}, nil
}

func (p *fakePusher) AskExplain(context.Context, wire.ExplainRequest, func(string, wire.ExplainResponse)) (func(), error) {
	return nil, errPush
}

func (p *fakePusher) Push(_ context.Context, _ wire.KeyChange, acks func(string, wire.Ack)) (func(), error) {
	if p.fails != nil {
		return nil, p.fails
	}
	p.pushes++
	if p.proxies != nil {
		go p.proxies(p.pushes, func(a wire.Ack) { acks(cmp.Or(p.forger, proxyOf(a.Session)), a) })
	}
	return func() { p.stopped++ }, nil
}

// proxyOf returns the name of the proxy of a session.
func proxyOf(session wire.SessionID) string { return fmt.Sprintf("proxy-%d", session) }

var errPush = errors.New("push failed")

func TestAnnounce(t *testing.T) {
	t.Parallel()
	const rev, anyPushes, window = 7, -1, 20 * time.Second
	timeout := Config{}.withDefaults().ConfirmTimeout
	both := []string{proxyOf(1), proxyOf(2)}
	two := []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), Window: window}, {Session: 2, Proxy: proxyOf(2), Window: window}}
	tests := []struct {
		name string
		// active are the active sessions at first; later changes them after a second.
		active []session.ActiveSession
		later  func(m *fakeStore)
		pusher fakePusher
		slow   time.Duration
		limit  time.Duration
		want   propagation.Confirmation
		// by are the proxies that have confirmed.
		by     []string
		after  time.Duration
		pushes int
	}{
		{
			name: "no session", want: propagation.Confirmation{Effective: true}, pushes: 1,
		},
		{
			name: "both sessions acknowledge", active: two,
			pusher: fakePusher{proxies: func(_ int, ack func(wire.Ack)) {
				time.Sleep(3 * time.Millisecond)
				ack(wire.Ack{Session: 1, Revision: rev})
				ack(wire.Ack{Session: 1, Revision: rev}) // the second one has no effect
				ack(wire.Ack{Session: 3, Revision: rev}) // not pending
				time.Sleep(3 * time.Millisecond)
				ack(wire.Ack{Session: 2, Revision: rev + 1})
			}},
			want: propagation.Confirmation{Effective: true}, by: both, after: 6 * time.Millisecond, pushes: 1,
		},
		{
			name: "the first push does not reach one session", active: two,
			pusher: fakePusher{proxies: func(push int, ack func(wire.Ack)) {
				ack(wire.Ack{Session: wire.SessionID(push), Revision: rev})
			}},
			want: propagation.Confirmation{Effective: true}, by: both, after: pushInterval, pushes: 2,
		},
		{
			name: "an acknowledgement arrives between two pushes", active: two,
			pusher: fakePusher{proxies: func(push int, ack func(wire.Ack)) {
				if push == 1 {
					ack(wire.Ack{Session: 1, Revision: rev})
					time.Sleep(pushInterval + time.Millisecond)
					ack(wire.Ack{Session: 2, Revision: rev})
				}
			}},
			want: propagation.Confirmation{Effective: true}, by: both, after: pushInterval + time.Millisecond, pushes: 2,
		},
		{
			name: "an acknowledgement of an older revision has no effect", active: two[:1], limit: 1100 * time.Millisecond,
			pusher: fakePusher{proxies: func(_ int, ack func(wire.Ack)) { ack(wire.Ack{Session: 1, Revision: rev - 1}) }},
			want:   propagation.Confirmation{Bound: session.Lasts(window), Waiting: two[:1]}, after: 1100 * time.Millisecond, pushes: 5,
		},
		{
			name: "one session is fenced without an acknowledgement", active: two,
			later:  func(m *fakeStore) { m.active = two[1:] },
			pusher: fakePusher{proxies: func(_ int, ack func(wire.Ack)) { ack(wire.Ack{Session: 2, Revision: rev}) }},
			want:   propagation.Confirmation{Effective: true}, by: both[1:], after: time.Second, pushes: 5,
		},
		{
			name: "a session is waited for until it is fenced", active: []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), Window: window}},
			later: func(m *fakeStore) { m.active = nil },
			want:  propagation.Confirmation{Effective: true}, after: time.Second, pushes: 5,
		},
		{
			name: "both proxies had applied the change before", active: []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), AppliedRevision: rev}, {Session: 2, Proxy: proxyOf(2), AppliedRevision: rev + 1}},
			want: propagation.Confirmation{Effective: true}, by: both, pushes: 1,
		},
		{
			name: "one session reports the change in a heartbeat", active: two,
			later: func(m *fakeStore) {
				m.active = []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), AppliedRevision: rev, Window: window}, two[1]}
			},
			pusher: fakePusher{proxies: func(_ int, ack func(wire.Ack)) { ack(wire.Ack{Session: 2, Revision: rev}) }},
			want:   propagation.Confirmation{Effective: true}, by: both, after: time.Second, pushes: 5,
		},
		{
			name: "a heartbeat with the old revision does not end the wait", active: two[:1], limit: 4900 * time.Millisecond,
			later: func(m *fakeStore) {
				m.active = []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), Window: window}}
			},
			want: propagation.Confirmation{
				Bound: session.Lasts(window), Waiting: []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), Window: window}},
			},
			after: 4900 * time.Millisecond, pushes: 20,
		},
		{
			name: "the confirm timeout ends the wait", active: []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), Window: window}},
			want:  propagation.Confirmation{Bound: session.Lasts(window), Waiting: []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), Window: window}}},
			after: timeout, pushes: anyPushes,
		},
		{
			name: "ctx ends before the sessions are read", active: two, slow: time.Second, limit: time.Millisecond,
			after: time.Second, pushes: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore(0, 0)
				store.active, store.slow = tt.active, tt.slow
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
				if by := got.ConfirmedBy(); !slices.Equal(by, tt.by) {
					t.Errorf("confirmed by %q; want %q", by, tt.by)
				}
				got.Confirmed = nil
				if diff := gocmp.Diff(tt.want, got); diff != "" {
					t.Errorf("confirmation (-want +got):\n%s", diff)
				}
				// Announce checks for changes once per push interval.
				if took := time.Since(start); took < tt.after || took >= tt.after+pushInterval {
					t.Errorf("took %v; want %v", took, tt.after)
				}
				if tt.pushes == anyPushes { // the timeout is at the same time as a push
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

// Postgres stops right after the commit: proxies get the change by a push and by the
// stream all the same, and nobody is told a time that depends on Postgres.
func TestChangeIsToldWhilePostgresDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 10 * time.Second
		// The key has an older secret that is valid for its overlap.
		older := wire.KeyChange{Revision: 6, Kind: wire.KeyRevoked, KeyHash: apikey.Hash{1}}
		alone := wire.KeyChange{Revision: 7, Kind: wire.KeyRevoked, KeyHash: apikey.Hash{2}}
		change := alone
		change.Before = &older
		store, pusher := newFakeStore(0, 0), &fakePusher{}
		store.silent = true
		began := time.Now()
		var appended []wire.KeyChange
		cfg := Config{Changes: &changeStream{}, Append: func(_ context.Context, c wire.KeyChange) error {
			if appended = append(appended, c); time.Since(began) > 0 || pusher.pushes == 0 {
				t.Errorf("appended after %v and %d pushes; want at once, after the first push", time.Since(began), pusher.pushes)
			}
			return nil
		}}
		s := New(cfg, store, pusher, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		got, err := s.Announce(ctx, change)
		if err != nil || got.Effective || got.Bound != 0 || time.Since(began) != limit {
			t.Errorf("got %+v, %v after %v; want neither effective nor a bound", got, err, time.Since(began))
		}
		if pusher.pushes == 0 || !slices.Equal(appended, []wire.KeyChange{older, alone}) {
			t.Errorf("%d pushes, appended %v; want both", pusher.pushes, appended)
		}
		// If the rotation is lost with the commits of Postgres, the older secret is the current one again.
		if !slices.Equal(pusher.recorded, []apikey.Hash{older.KeyHash, alone.KeyHash}) {
			t.Errorf("recorded the revocations of %v; want both secrets", pusher.recorded)
		}
	})
}

// While the stream of changes does not take a change, nobody knows how long a proxy
// that is fresh admits without it. It is appended as soon as the stream takes it.
func TestBoundOfAChangeDependsOnTheStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(0, 0)
		store.active = []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), Window: 20 * time.Second}}
		fails := errStore
		cfg := Config{Changes: &changeStream{}, Append: func(context.Context, wire.KeyChange) error { return fails }}
		s := New(cfg, store, &fakePusher{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		for _, test := range []struct {
			fails error
			want  time.Duration
		}{{errStore, 0}, {nil, session.Lasts(20 * time.Second)}} {
			fails = test.fails
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			got, err := s.Announce(ctx, wire.KeyChange{Revision: 7, Kind: wire.KeyRevoked})
			cancel()
			if err != nil || got.Effective || got.Bound != test.want || len(got.WaitingFor()) != 1 {
				t.Errorf("the stream says %v: got %+v, %v; want the bound %v", test.fails, got, err, test.want)
			}
		}
	})
}

func TestAnnounceReturnsErrorsOfPushAndStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(0, 0)
		store.active = []session.ActiveSession{{Session: 1, Proxy: proxyOf(1), Window: time.Second}}
		if _, err := newService(store, &fakePusher{fails: errPush}).Announce(t.Context(), wire.KeyChange{}); !errors.Is(err, errPush) {
			t.Errorf("got %v; want %v", err, errPush)
		}
		store.fails = errStore
		if _, err := newService(store, &fakePusher{}).Announce(t.Context(), wire.KeyChange{}); !errors.Is(err, errStore) {
			t.Errorf("got %v; want %v", err, errStore)
		}
	})
}

// lossyPusher is a Pusher that records a revocation at the second attempt, after
// which the store has lost the revocation.
type lossyPusher struct {
	fakePusher
	store    *fakeStore
	attempts int
}

func (p *lossyPusher) RecordRevocation(context.Context, wire.KeyChange) error {
	if p.attempts++; p.attempts == 1 {
		return errPush
	}
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.store.lost = true
	return nil
}

// Whether Postgres still has a revocation is read after it was recorded, since
// Postgres may have lost it before that.
func TestLostRevocationIsNotConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(0, 0)
		p := &lossyPusher{store: store}
		got, err := newService(store, p).Announce(t.Context(), wire.KeyChange{Revision: 7, Kind: wire.KeyRevoked})
		if !errors.Is(err, ErrChangeLost) || got.Effective {
			t.Errorf("got %+v, %v; want %v", got, err, ErrChangeLost)
		}
	})
}
