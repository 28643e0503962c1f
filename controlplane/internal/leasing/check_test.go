package leasing

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

// liveStore is a store with live sessions.
type liveStore struct {
	*fakeStore
	live map[wire.SessionID]string
}

func (s *liveStore) LiveSessions(context.Context) (map[wire.SessionID]string, error) {
	return s.live, nil
}

// One proxy makes the calls, and no other can answer for it.
func TestOneProxyChecksAProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, pusher := &liveStore{fakeStore: newFakeStore(0, 0)}, &fakePusher{}
		s := New(Config{}, store, pusher, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if name, _, answered, err := s.CheckProvider(t.Context(), "p"); name != "" || answered || err != nil {
			t.Errorf("without a proxy: got %q, %v, %v", name, answered, err)
		}

		store.live = map[wire.SessionID]string{1: "b", 2: "a", 3: "c"}
		pusher.check = func(q checkwire.Request, answer func(string, checkwire.Response)) {
			if q.Proxy != "a" || q.Provider != "p" {
				t.Errorf("asked %+v", q)
			}
			answer("b", checkwire.Response{Session: 1, Name: "b"}) // was not asked
			answer("b", checkwire.Response{Session: 2, Name: "a"}) // speaks for another
			answer("a", checkwire.Response{Session: 9, Name: "a"}) // has another session
			time.Sleep(20 * time.Second)
			answer("a", checkwire.Response{Session: 2, Name: "a", CatalogRevision: 7})
			answer("a", checkwire.Response{Session: 2, Name: "a", CatalogRevision: 8})
		}
		name, got, answered, err := s.CheckProvider(t.Context(), "p")
		if name != "a" || !answered || got.CatalogRevision != 7 || err != nil {
			t.Errorf("got %q, %+v, %v, %v", name, got, answered, err)
		}

		pusher.check = nil
		if name, _, answered, err := s.CheckProvider(t.Context(), "p"); name != "a" || answered || err != nil {
			t.Errorf("a silent proxy: got %q, %v, %v", name, answered, err)
		}
	})
}
