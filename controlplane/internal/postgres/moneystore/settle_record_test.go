package moneystore_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// Each member of an event is stored in its column, also at the limits of its range,
// and in the month of the request.
func TestRecordsContainAllMembersOfAnEvent(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(1000, storetest.Unlimited, 5)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	month := time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day()).Truncate(24 * time.Hour)
	full := c.Event(s, 1, 7)
	full.RequestID = ident.Request.Format(ident.NewAt(month.Add(-time.Millisecond)))
	full.Model, full.Format, full.Provider, full.Route, full.ProviderRequestID = "modèle ✓", "responses", "p\"'\\", "rte_1", "line\none"
	full.Credential = "main ✓"
	full.Status, full.HTTPStatus, full.Stream, full.FirstByteMS = event.ClientGone, 499, true, 1<<40
	full.StartedMS, full.FinishedMS = -62_135_596_800_000, 253_402_300_799_999 // years 1 and 9999
	full.Usage = price.Usage{Input: 1, CacheWrite1h: 2, Images: 3, Size: "1x1", Quality: "hd"}
	full.Doubt = "missing"
	full.Rule, full.Estimated, full.PriceVersion, full.PriceMultiplier = event.RuleEstimated, true, 9, 1_250_000
	full.Reservation, full.VideoJob = 11, "video_1"
	full.Attempts = []event.Attempt{{Route: "rte_0", Credential: "crd_\"1", Class: "timeout", MS: 84}, {Route: "rte_2", Skipped: event.SkippedBreaker}}
	free := c.Event(s, 2, 0)
	free.RequestID = ident.Request.Format(ident.NewAt(month))
	if got := w.Settle(db, full, free); got.Settled != 2 {
		t.Fatalf("%+v; want both settled", got)
	}
	for _, tt := range []struct {
		n                               int
		partition, started, finished    string
		multiplier                      int64
		charged, settledWithTransaction bool
		event                           event.Usage
	}{
		{1, month.AddDate(0, -1, 0).Format("200601"), "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999+00:00", 1_250_000, true, true, full},
		{2, month.Format("200601"), iso(free.StartedMS), iso(free.FinishedMS), 1_000_000, false, true, free},
	} {
		e := tt.event
		counts, _ := json.Marshal(e.Usage)
		var attempts any
		if len(e.Attempts) > 0 {
			text, _ := json.Marshal(e.Attempts)
			_ = json.Unmarshal(text, &attempts)
		}
		want := map[string]any{
			"table": "usage_records_" + tt.partition, "session_id": float64(e.Session), "model": e.Model, "format": e.Format, "provider": e.Provider,
			"route": e.Route, "credential": e.Credential, "provider_request_id": e.ProviderRequestID, "status": string(e.Status), "http_status": float64(e.HTTPStatus), "stream": e.Stream,
			"started_at": tt.started, "finished_at": tt.finished, "first_byte_ms": float64(e.FirstByteMS), "rule": e.Rule, "estimated": e.Estimated, "doubt": e.Doubt,
			"price_version": float64(e.PriceVersion), "cost": float64(e.Cost), "reservation": float64(e.Reservation), "video_job": e.VideoJob,
			"provider_cost": nil, "provider_price_version": nil,
			"attempts": attempts, "price_multiplier": float64(tt.multiplier), "charged": tt.charged, "in_time": tt.settledWithTransaction,
			"same": true, "request": e.RequestID, "account": e.AccountID, "key": e.KeyID, "project_id": nil,
		}
		var got map[string]any
		text := storetest.Scalar[string](w, `select (to_jsonb(r) - '{request_id,account_id,key_id,seq,usage,settled_at,transaction_id}'::text[] || jsonb_build_object(
				'table', r.tableoid::regclass::text, 'charged', r.transaction_id is not null,
				'in_time', r.settled_at = (select min(created_at) from ledger_transactions where kind = 'usage'),
				'same', r.usage::text = $2,
				'request', 'req_' || replace(request_id::text, '-', ''), 'account', 'acc_' || replace(account_id::text, '-', ''),
				'key', 'key_' || replace(key_id::text, '-', '')))::text
			from usage_records r where seq = $1`, tt.n, string(counts))
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", tt.n, diff)
		}
	}
	w.Check()
}

func iso(ms int64) string {
	text, _ := time.UnixMilli(ms).UTC().MarshalText()
	return string(text[:len(text)-1]) + "+00:00"
}

// An event with a time that Postgres cannot store goes into quarantine. It is not
// stored with another time.
func TestTimesOutOfRangeAreQuarantined(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(1000, storetest.Unlimited, 5)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	for i, ms := range []int64{math.MaxInt64, math.MinInt64, 1<<53 + 1, -1 << 53} {
		e := c.Event(s, int64(i)+1, 1)
		e.StartedMS = ms
		if got := w.Settle(db, e); got.Quarantined != 1 {
			t.Errorf("%d: %+v; want it in quarantine", ms, got)
		}
	}
	e := c.Event(s, 9, 1)
	e.Usage.Size = "1\x001"
	if got := w.Settle(db, e); got.Quarantined != 1 {
		t.Errorf("a size that is no text for Postgres: %+v; want it in quarantine", got)
	}
	e = c.Event(s, 10, 1)
	e.Usage.CacheWrite1h, e.Usage.CacheWriteOther = math.MaxInt64, 1
	if got := w.Settle(db, e, c.Event(s, 11, 1)); got.Quarantined != 1 || got.Settled != 1 {
		t.Errorf("counts that cannot be added up: %+v; want them in quarantine, and the other event settled", got)
	}
	w.Check()
}
