package fleet_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

// proxies is a store of sessions that change by the time since the test began.
type proxies struct {
	began time.Time
	at    func(passed time.Duration) []fleet.Proxy
	err   error
	last  *wire.KeyChange
}

func (p *proxies) Fleet(context.Context) (fleet.Fleet, error) {
	return fleet.Fleet{Rev: 9, CatalogRev: 4, Proxies: p.at(time.Since(p.began))}, p.err
}

func (p *proxies) LastChange(context.Context) (*wire.KeyChange, error) { return p.last, nil }

// announced answers each announcement.
type announced func(c wire.KeyChange) (propagation.Confirmation, error)

func (a announced) Announce(_ context.Context, c wire.KeyChange) (propagation.Confirmation, error) {
	return a(c)
}

func live(number int64, name string, applied, catalog int64) fleet.Proxy {
	return fleet.Proxy{Session: number, Name: name, State: fleet.Active, AppliedRev: applied, CatalogRev: catalog}
}

func TestWaitEndsWhenEverySessionOfEveryLiveProxyHasTheCatalog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &proxies{began: time.Now(), at: func(passed time.Duration) []fleet.Proxy {
			late, gone := live(2, "late", 9, 3), live(3, "gone", 0, 0)
			gone.State = fleet.Expired // nobody waits for it
			if passed >= 3*time.Second {
				late.CatalogRev = 4
			}
			return []fleet.Proxy{live(1, "late", 9, 4), late, gone, live(4, "quick", 9, 4)}
		}}
		w := fleet.NewWaiter(store, announced(nil), slog.New(slog.DiscardHandler))

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := w.Wait(short, propagation.Changes{CatalogRev: 4})
		want := fleet.Applied{By: []string{"quick"}, Pending: []string{"late"}}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("when its time was over: %v\n%s", err, diff)
		}

		got, err = w.Wait(t.Context(), propagation.Changes{CatalogRev: 4})
		want = fleet.Applied{By: []string{"late", "quick"}}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("at its end: %v\n%s", err, diff)
		}
		if passed := time.Since(store.began); passed < 3*time.Second || passed > 4*time.Second {
			t.Errorf("waited for %s; want until 3 s", passed)
		}
	})
}

// A change that its service has announced until it was effective is not announced again.
func TestAnEffectiveKeyChangeIsNotAnnouncedAgain(t *testing.T) {
	t.Parallel()
	store := &proxies{began: time.Now(), at: func(time.Duration) []fleet.Proxy { return []fleet.Proxy{live(1, "a", 8, 4)} }}
	w := fleet.NewWaiter(store, announced(func(c wire.KeyChange) (propagation.Confirmation, error) {
		t.Errorf("announced %+v", c)
		return propagation.Confirmation{Effective: true}, nil
	}), slog.New(slog.DiscardHandler))
	var changes propagation.Changes
	changes.AddAnnounced(&wire.KeyChange{Revision: 9}, &propagation.Confirmation{Effective: true})
	got, err := w.Wait(t.Context(), changes)
	if diff := cmp.Diff(fleet.Applied{By: []string{"a"}}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if changes.AddKey(&wire.KeyChange{Revision: 10}); changes.Effective {
		t.Error("a change that was not announced counts as effective")
	}
}

func TestAConfirmedKeyChangeNeedsNoHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &proxies{began: time.Now(), at: func(time.Duration) []fleet.Proxy {
			return []fleet.Proxy{live(1, "a", 8, 4), live(2, "b", 8, 4)}
		}}
		calls := 0
		w := fleet.NewWaiter(store, announced(func(c wire.KeyChange) (propagation.Confirmation, error) {
			switch calls++; {
			case c.Revision != 9:
				t.Errorf("announced revision %d; want 9", c.Revision)
			case calls == 1:
				return propagation.Confirmation{}, errors.New("NATS is away")
			case calls == 2:
				return propagation.Confirmation{Waiting: []session.ActiveSession{{Session: 2}}}, nil
			}
			return propagation.Confirmation{Effective: true}, nil
		}), slog.New(slog.DiscardHandler))

		got, err := w.Wait(t.Context(), propagation.Changes{Key: &wire.KeyChange{Revision: 9}})
		if diff := cmp.Diff(fleet.Applied{By: []string{"a", "b"}}, got); diff != "" || err != nil || calls != 3 {
			t.Errorf("after %d announcements: %v\n%s", calls, err, diff)
		}

		// A request that changed nothing waits for the newest change.
		store.last = &wire.KeyChange{Revision: 9}
		if got, err = w.Wait(t.Context(), propagation.Changes{}); err != nil || len(got.Pending) != 0 || calls != 4 {
			t.Errorf("without changes: %+v, %v, %d announcements", got, err, calls)
		}
	})
}

func TestUsageOfProxiesWithoutAnActiveSessionIsExported(t *testing.T) {
	t.Parallel()
	fenced := fleet.Proxy{Session: 1, Name: "down", State: fleet.Fenced, Left: 5, SpoolUsed: 9}
	restarted := fleet.Proxy{Session: 2, Name: "up", State: fleet.Fenced, Left: 3}
	busy := live(3, "up", 1, 1)
	busy.SpoolUsed, busy.Running = 7, 4
	f := fleet.Fleet{Proxies: []fleet.Proxy{fenced, restarted, busy}}
	if diff := cmp.Diff(map[string]int64{"down": 5}, f.Unserved()); diff != "" {
		t.Error(diff)
	}
	if got := busy.Unsettled(); got != 3 {
		t.Errorf("%d finished requests of a live proxy are unsettled; want 3", got)
	}

	registry := prometheus.NewRegistry()
	store := &proxies{at: func(time.Duration) []fleet.Proxy { return f.Proxies }}
	m := fleet.NewMetrics(store, registry)
	if err := m.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry, "mgw_sessions_unsettled"); err != nil || n != 1 {
		t.Errorf("%d proxies are reported, %v; want one", n, err)
	}
	if n, err := testutil.GatherAndCount(registry, "mgw_proxy_sessions"); err != nil || n != 4 {
		t.Errorf("%d states are reported, %v; want four, also those without a session", n, err)
	}
}
