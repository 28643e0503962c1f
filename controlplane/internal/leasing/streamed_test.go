package leasing

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// changeStream is a stream of changes in memory, with one message.
type changeStream struct {
	mu     sync.Mutex
	at     session.Place
	change wire.StreamChange
}

func (s *changeStream) LastChange(context.Context, string) (wire.StreamChange, session.Place, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.change, s.at, s.at.Sequence, nil
}

func (s *changeStream) ChangeAt(_ context.Context, at session.Place) (session.Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Sequence != s.at.Sequence {
		return session.Place{}, nil
	}
	return s.at, nil
}

func (s *changeStream) append(c wire.KeyChange, sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := strconv.FormatUint(sequence, 10)
	s.at, s.change = session.Place{Incarnation: "a", Sequence: sequence, ID: id}, wire.StreamChange{V: wire.Version, ID: id, Change: c}
}

func (s *changeStream) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.change = session.Place{}, wire.StreamChange{}
}

// No proxy acknowledges the change. It is effective when the stream has had it for
// the window of every session, which each call of Announce continues to wait for.
func TestStreamConfirmsAChange(t *testing.T) {
	t.Parallel()
	const window, wait = 10 * time.Second, 11 * time.Second // with a margin of 1 s
	change := wire.KeyChange{V: wire.Version, Revision: 7, Kind: wire.KeyRevoked}
	fresh := session.ActiveSession{Session: 1, Proxy: "cut off", Window: window}
	for name, test := range map[string]struct {
		active []session.ActiveSession
		change func(s *changeStream)
		want   bool
		after  time.Duration
	}{
		"the stream has it": {active: []session.ActiveSession{fresh}, want: true, after: wait},
		"the stream loses it after 5 s and gets it again after 8 s": {
			active: []session.ActiveSession{fresh}, want: true, after: 22 * time.Second,
			change: func(s *changeStream) {
				time.Sleep(5 * time.Second)
				s.lose()
				time.Sleep(3 * time.Second)
				s.append(change, 3)
			},
		},
		"a loss of commits may hide sessions": {active: []session.ActiveSession{fresh, {}}, after: time.Minute},
		"another session has a longer window": {
			active: []session.ActiveSession{fresh, {Session: 2, Proxy: "slow", Window: 40 * time.Second}}, want: true, after: 42500 * time.Millisecond,
		},
		"the stream never gets it": {
			active: []session.ActiveSession{fresh}, after: time.Minute,
			change: (*changeStream).lose,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stream, store := &changeStream{}, newFakeStore(100, 1)
				stream.append(change, 2)
				store.active = test.active
				s := New(Config{Window: window, Changes: stream, Append: func(context.Context, wire.KeyChange) error { return nil }, ConfirmTimeout: 6 * time.Second}, store, &fakePusher{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
				if test.change != nil {
					go test.change(stream)
					synctest.Wait()
				}
				began := time.Now()
				var got propagation.Confirmation
				for !got.Effective && time.Since(began) < time.Minute {
					var err error
					if got, err = s.Announce(t.Context(), change); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); got.Effective != test.want || took < test.after || took > test.after+2*time.Second {
					t.Errorf("effective: %t after %v; want %t after %v", got.Effective, took, test.want, test.after)
				}
				if len(got.ConfirmedBy()) != 0 {
					t.Errorf("confirmed by %v; want nobody", got.ConfirmedBy())
				}
			})
		})
	}
}
