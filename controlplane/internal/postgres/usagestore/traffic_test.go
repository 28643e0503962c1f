package usagestore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/ident"
	"modelgateway/shared/pulse"
)

// recorders are two control planes that hear one proxy and write to one database.
type recorders struct {
	t     *testing.T
	now   time.Time
	store *usagestore.Traffic
	lives [2]*traffic.Live
	// total has what the proxy has counted.
	total map[pulse.Series]*pulse.Total
}

func newRecorders(t *testing.T) *recorders {
	t.Helper()
	// The minutes of the test are in one hour of today, which has a partition.
	r := &recorders{t: t, now: time.Now().UTC().Truncate(time.Hour).Add(-time.Minute), total: map[pulse.Series]*pulse.Total{}}
	if r.now.Day() != time.Now().UTC().Day() {
		r.now = r.now.Add(time.Hour)
	}
	r.store = usagestore.NewTraffic(postgres.Wrap(pgtest.New(t)))
	for i := range r.lives {
		r.lives[i] = traffic.NewLive(func() time.Time { return r.now })
		r.lives[i].SetSessions([]traffic.Session{{ID: 7, Name: "one"}, {ID: 8, Name: "silent"}})
	}
	r.now = r.now.Add(time.Minute)
	return r
}

// serve counts in the proxy, which then reports.
func (r *recorders) serve(s pulse.Series, n int64, refusals ...pulse.Refusal) {
	if r.total[s] == nil {
		r.total[s] = &pulse.Total{Series: s}
		if bounds := s.Measure.Bounds(); bounds != nil {
			r.total[s].Buckets = make([]int64, len(bounds)+1)
		}
	}
	total := r.total[s]
	total.N += n
	if total.Buckets != nil {
		total.Buckets[4] += n
		total.SumMS += 150 * n
	}
	for _, live := range r.lives {
		report := pulse.Report{V: 1, Proxy: "one", Process: "p", Session: 7, Refusals: refusals}
		for _, t := range r.total {
			copied := *t
			copied.Buckets = append([]int64(nil), t.Buckets...)
			report.Totals = append(report.Totals, copied)
		}
		live.Receive(&report)
	}
}

// write lets each control plane write, twice.
func (r *recorders) write() {
	r.t.Helper()
	for i := range 4 {
		if err := traffic.NewRecorder(r.lives[i%2], r.store).Run(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *recorders) series(q traffic.Query) *traffic.Series {
	r.t.Helper()
	q.From, q.To = r.now.Truncate(time.Hour), r.now.Truncate(q.Step).Add(q.Step)
	s, err := traffic.NewService(r.store, r.lives[0], func() time.Time { return r.now }).Series(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

var (
	served  = pulse.Series{Measure: pulse.Requests, Endpoint: "/v1/chat/completions", Status: 200, Outcome: "completed"}
	refused = pulse.Series{Measure: pulse.Requests, Endpoint: "/v1/chat/completions", Status: 402, Code: "insufficient_quota", Outcome: "refused"}
	first   = pulse.Series{Measure: pulse.FirstToken, Provider: "prv_1", Route: "rte_1"}
)

func TestMinutesAreWrittenOnceAndTheUnknownStaysUnknown(t *testing.T) {
	t.Parallel()
	r := newRecorders(t)
	r.serve(served, 5)
	r.serve(first, 4)
	r.now = r.now.Add(time.Minute)
	r.serve(served, 7)
	r.serve(refused, 2)
	r.now = r.now.Add(2 * time.Minute) // in one of them nothing is heard
	r.serve(served, 1)
	r.write() // the third minute is not over
	r.now = r.now.Add(time.Minute + 3*time.Second)
	r.write() // and a proxy is silent, so it waits
	type point struct {
		minutes, heard, silent int
		sums                   map[string]int64
	}
	of := func(q traffic.Query) (found []point) {
		for _, p := range r.series(q).Points {
			one := point{p.Minutes, p.Heard, p.Silent, map[string]int64{}}
			for label, sum := range p.Sums {
				one.sums[label] = sum.N
			}
			found = append(found, one)
		}
		return found
	}
	compare := func(name string, got, want []point) {
		t.Helper()
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(point{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	compare("minutes", of(traffic.Query{Measure: traffic.Requests, By: "status", Step: time.Minute}),
		[]point{{1, 1, 1, map[string]int64{"200": 5}}, {1, 1, 1, map[string]int64{"200": 7, "402": 2}}, {}, {}, {}})
	compare("hour", of(traffic.Query{Measure: traffic.Requests, Step: time.Hour}), []point{{2, 1, 1, map[string]int64{"": 14}}})
	compare("refusals", of(traffic.Query{Measure: traffic.Refusals, By: "code", Step: time.Hour}), []point{{2, 1, 1, map[string]int64{"insufficient_quota": 2}}})
	r.now = r.now.Add(time.Minute)
	r.write()
	compare("hour later", of(traffic.Query{Measure: traffic.Requests, Step: time.Hour}), []point{{3, 1, 1, map[string]int64{"": 15}}})

	ttft := r.series(traffic.Query{Measure: traffic.TTFT, By: "route", Step: time.Hour}).Points[0].Sums["rte_1"]
	if median := ttft.Quantile(pulse.FirstToken, 0.5); ttft.N != 4 || ttft.SumMS != 600 || median == nil || *median != 175*time.Millisecond {
		t.Errorf("times to the first token: %+v", ttft)
	}
}

func TestRefusalsAreAddedUpByHour(t *testing.T) {
	t.Parallel()
	r := newRecorders(t)
	one, two, secret := ident.Account.New(), ident.Account.New(), ident.Key.New()
	short := &pulse.Short{Pool: pulse.Balance, Reason: "balance_insufficient", Wanted: 5, Free: 1}
	refusal := func(account, id string, s *pulse.Short) pulse.Refusal {
		return pulse.Refusal{Account: account, Key: secret, Code: "insufficient_quota", Status: 402, N: 2, FirstMS: 500, RequestID: id, Model: "m", Short: s}
	}
	began := r.now
	r.serve(refused, 2, refusal(one, "req_1", nil), refusal("garbage", "req_2", nil))
	r.now = r.now.Add(time.Minute)
	ended := r.now
	r.serve(refused, 2, refusal(one, "req_3", short), refusal(two, "req_4", nil), pulse.Refusal{Code: "invalid_api_key", Status: 401, N: 9, RequestID: "req_5"})
	r.now = r.now.Add(2 * time.Minute)
	r.write()
	list := func(q traffic.RefusalQuery) (found []traffic.HourlyRefusal) {
		t.Helper()
		q.Limit = 10
		found, err := traffic.NewService(r.store, r.lives[0], nil).Refusals(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range found {
			found[i].First, found[i].Last = found[i].First.UTC(), found[i].Last.UTC()
		}
		return found
	}
	all := list(traffic.RefusalQuery{})
	if len(all) != 4 || all[0].ID <= all[1].ID {
		t.Fatalf("%d rows: %+v; want 4, the newest first", len(all), all)
	}
	id, err := account.ParseID(one)
	if err != nil {
		t.Fatal(err)
	}
	want := traffic.Refusal{
		RefusalKey: traffic.RefusalKey{Account: one, Key: secret, Code: "insufficient_quota", Status: 402}, N: 4,
		First: began.Add(-500 * time.Millisecond), Last: ended, RequestID: "req_3", Model: "m", Short: short,
	}
	got := list(traffic.RefusalQuery{Account: &id})
	if len(got) != 1 {
		t.Fatalf("%d rows of the account; want one", len(got))
	}
	if diff := cmp.Diff(want, got[0].Refusal); diff != "" || !got[0].Hour.Equal(began.Truncate(time.Hour)) {
		t.Errorf("refusals of the hour %s (-want +got):\n%s", got[0].Hour, diff)
	}
	if none := list(traffic.RefusalQuery{Code: "invalid_api_key"}); len(none) != 1 || none[0].Account != "" || none[0].N != 9 {
		t.Errorf("refusals without a key: %+v", none)
	}
	if next := list(traffic.RefusalQuery{Before: all[0].ID}); len(next) != 3 {
		t.Errorf("%d rows on the next page; want 3", len(next))
	}
	if past := list(traffic.RefusalQuery{To: began.Truncate(time.Hour)}); len(past) != 0 {
		t.Errorf("rows of earlier hours: %+v", past)
	}
}

func TestOldTrafficIsRemoved(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := usagestore.NewTraffic(postgres.Wrap(pool))
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`create table traffic_minutes_20260101 partition of traffic_minutes for values from ('2026-01-01 00:00Z') to ('2026-01-02 00:00Z');
		insert into traffic_hours select h, 'requests', '', '', '', '', 200, '', 'completed', 1, 0 from unnest(array[now() - interval '401 days', now() - interval '399 days']) as h;
		insert into traffic_coverage select h, 1, 0 from unnest(array[now() - interval '401 days', now() - interval '399 days']) as h;
		insert into traffic_refusals (hour, code, status, other, n, first_at, last_at, request_id, model)
			select h, '', 400, false, 1, h, now(), '', '' from unnest(array[now() - interval '401 days', now() - interval '399 days']) as h`)
	for range 2 {
		if err := store.KeepPartitions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var partitions, hours, coverage, refusals int
	if err := pool.QueryRow(t.Context(), `select (select count(*) from pg_inherits where inhparent = 'traffic_minutes'::regclass), (select count(*) from traffic_hours),
		(select count(*) from traffic_coverage), (select count(*) from traffic_refusals)`).Scan(&partitions, &hours, &coverage, &refusals); err != nil {
		t.Fatal(err)
	}
	if partitions != 2 || hours != 1 || coverage != 1 || refusals != 1 {
		t.Errorf("%d partitions, %d hours, %d minutes of coverage, %d refusals; want 2 and one each", partitions, hours, coverage, refusals)
	}
}
