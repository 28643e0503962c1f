package leasestore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/wire"
)

// A proxy goes away with four requests whose usage has not arrived. That is shown
// until it does, also after its session was closed because of its age.
func TestUsageLeftOnAProxyIsShownUntilItArrives(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store := leasestore.NewLeases(db)
	c := w.Customer(1000, storetest.Unlimited, 5)
	session := w.Session(store, "gone")
	want := func(when string, want map[string]int64) {
		t.Helper()
		f, err := leasestore.NewFleet(db).Fleet(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, f.Unserved()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	boot := storetest.Scalar[string](w, "select boot_id from proxy_sessions where id = $1", session)
	beat := wire.HeartbeatRequest{V: wire.Version, Session: session, BootID: boot, Running: 2, Started: 4, SpoolUsed: 4}
	if r, err := store.Heartbeat(t.Context(), &beat, time.Minute, 10); err != nil || r.Status != wire.Done {
		t.Fatalf("%+v, %v", r, err)
	}
	want("while the proxy serves", map[string]int64{})
	w.Exec("update proxy_sessions set state = 2 where id = $1", session)
	want("after the session was fenced", map[string]int64{"gone": 4})
	reg := prometheus.NewRegistry()
	if err := fleet.NewMetrics(leasestore.NewFleet(db), reg).Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP mgw_proxy_sessions Sessions of proxies by state: active, expired (without heartbeats, not fenced yet), fenced, or closed with usage that has not arrived.
# TYPE mgw_proxy_sessions gauge
mgw_proxy_sessions{state="active"} 0
mgw_proxy_sessions{state="closed"} 0
mgw_proxy_sessions{state="expired"} 0
mgw_proxy_sessions{state="fenced"} 1
`), "mgw_proxy_sessions"); err != nil {
		t.Error(err)
	}
	w.Settle(db, c.Event(session, 1, 5), c.Event(session, 2, 5))
	want("after two events have arrived", map[string]int64{"gone": 2})
	w.Exec("update proxy_sessions set state = 3 where id = $1", session)
	want("after the session was closed", map[string]int64{"gone": 2})
	if f, err := leasestore.NewFleet(db).Fleet(t.Context()); err != nil || len(f.Proxies) != 1 || f.Proxies[0].State != fleet.Closed {
		t.Errorf("listed %+v, %v; want the closed session", f.Proxies, err)
	}
	back := w.Session(store, "gone")
	want("when the proxy is back", map[string]int64{})
	w.Settle(db, c.Event(session, 3, 5), c.Event(session, 4, 5))
	w.Exec("update proxy_sessions set state = 3 where id = $1", back)
	want("after everything has arrived", map[string]int64{})
}
