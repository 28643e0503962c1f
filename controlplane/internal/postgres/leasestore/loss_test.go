package leasestore_test

import (
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/lease/rollback"
)

// After a loss of commits, usage is settled again from a time before the last
// settled event, which may be hours ago after an outage. A second loss soon after
// the first starts from the same time, since the replay may not have ended.
func TestReplayStartsBeforeLastSettlement(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(1_000_000, storetest.Unlimited, 1)
	proxy := w.Session(leasestore.NewLeases(db), "proxy")
	events := int64(0)
	settle := func(finished time.Time) {
		t.Helper()
		events++
		e := c.Event(proxy, events, 1)
		e.StartedMS, e.FinishedMS = finished.UnixMilli(), finished.UnixMilli()
		if r := w.Settle(db, e); r.Settled != 1 {
			t.Fatalf("settled %+v", r)
		}
	}
	number := int64(0)
	replayed := func() time.Time {
		t.Helper()
		number++
		_, err := leasestore.NewRecovery(db).DeclareLoss(t.Context(), number, rollback.HighWaterMark{}, time.Second, recovery.Backup{})
		storetest.Check(t, err)
		_, from, err := leasestore.NewRecovery(db).UsageReplay(t.Context())
		storetest.Check(t, err)
		if from == nil {
			t.Fatal("all usage would be settled again")
		}
		return *from
	}
	about := func(name string, got, want time.Time) {
		t.Helper()
		if got.Sub(want).Abs() > time.Minute {
			t.Errorf("%s: from %s; want %s", name, got, want)
		}
	}
	now := time.Now()
	settle(now)
	about("without delay", replayed(), now.Add(-time.Hour))
	settle(now.Add(-3 * time.Hour))
	about("after an outage", replayed(), now.Add(-4*time.Hour))
	before := func(lost, from string) {
		t.Helper()
		_, err := w.SQL.Exec(t.Context(), "update cluster_state set lost_at = now() - $1::interval, usage_replay_from = now() - $2::interval", lost, from)
		storetest.Check(t, err)
	}
	before("5 minutes", "6 hours")
	about("soon after another", replayed(), now.Add(-6*time.Hour))
	before("2 days", "3 days")
	about("long after another", replayed(), now.Add(-4*time.Hour))
}

// Records keep the version of the price by which they were charged, and proxies
// may still charge by a price that was lost. So its version is never assigned to
// another price.
func TestLostPriceVersionsAreNotReused(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	_, err := w.SQL.Exec(t.Context(), "insert into models (id, type, enabled, spec, public, revision) values ('m', 'text', true, '{}', true, 1)")
	storetest.Check(t, err)
	price := func() (version int64) {
		t.Helper()
		storetest.Check(t, w.SQL.QueryRow(t.Context(), "insert into model_prices (model_id, sheet, effective_from) values ('m', '{}', now()) returning version").Scan(&version))
		var ofProvider int64
		storetest.Check(t, w.SQL.QueryRow(t.Context(), "insert into provider_prices (route_id, sheet, effective_from) values ('r', '{}', now()) returning version").Scan(&ofProvider))
		if ofProvider != version {
			t.Errorf("the provider's price has version %d; want %d, as many were given out as of the model's", ofProvider, version)
		}
		return version
	}
	price()
	declare := func(number int64) {
		t.Helper()
		_, err := leasestore.NewRecovery(db).DeclareLoss(t.Context(), number, rollback.HighWaterMark{}, time.Second, recovery.Backup{})
		storetest.Check(t, err)
	}
	// The restored copy has one price; a hundred later prices are lost.
	lost := price() + 100
	declare(1)
	if next := price(); next <= lost {
		t.Errorf("the next price has version %d, as one that was lost; want one above %d", next, lost)
	}
	lost = price() + 100
	declare(2)
	if next := price(); next <= lost {
		t.Errorf("after another loss: version %d; want one above %d", next, lost)
	}
}
