package traffic

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/project"
	"modelgateway/shared/ident"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// station is a Live with a clock of its own.
type station struct {
	*Live
	t   *testing.T
	now time.Time
}

func newStation(t *testing.T) *station {
	t.Helper()
	s := &station{t: t, now: time.Date(2026, 3, 3, 9, 0, 0, 0, time.UTC)}
	s.Live = NewLive(func() time.Time { return s.now })
	return s
}

// proxy sends reports of one process.
type proxy struct {
	*station
	report  pulse.Report
	started time.Time
	total   map[pulse.Series]int64
}

func (s *station) proxy(name string, session int64, uptime time.Duration) *proxy {
	return &proxy{s, pulse.Report{V: 1, Proxy: name, Process: name, Session: wire.SessionID(session)}, s.now.Add(-uptime), map[pulse.Series]int64{}}
}

var (
	answered = pulse.Series{Measure: pulse.Requests, Endpoint: "/v1/chat/completions", Status: 200, Outcome: "completed"}
	refused  = pulse.Series{Measure: pulse.Requests, Endpoint: "/v1/chat/completions", Status: 402, Code: "insufficient_quota", Outcome: "refused"}
)

// serve counts requests.
func (p *proxy) serve(of pulse.Series, n int64) { p.total[of] += n }

// send sends a report; lost ones are not heard.
func (p *proxy) send(lost bool) {
	r := p.report
	r.UptimeMS = p.now.Sub(p.started).Milliseconds()
	for series, n := range p.total {
		r.Totals = append(r.Totals, pulse.Total{Series: series, N: n})
	}
	if !lost {
		p.Receive(&r)
	}
}

// pass lets time pass without reports.
func (s *station) pass(d time.Duration) { s.now = s.now.Add(d) }

// counted returns how many requests were counted in the last minutes.
func (s *station) counted(minutes int) int64 {
	s.pass(time.Minute)
	return s.long.sum(s.now, minutes).Times(pulse.Requests).N
}

func TestALostReportLosesNothing(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	p := s.proxy("one", 7, 0)
	for i := range 10 {
		s.pass(pulse.Interval)
		p.serve(answered, 3)
		p.send(i%3 == 1)
	}
	if n := s.counted(5); n != 30 {
		t.Errorf("%d requests; want 30", n)
	}
}

func TestTotalsOfATimeThatWasNotHeardDoNotCount(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	old, restarted := s.proxy("old", 7, time.Hour), s.proxy("new", 8, 0)
	old.serve(answered, 1_000_000)
	old.send(false)
	s.pass(pulse.Interval)
	old.serve(answered, 4)
	old.serve(refused, 1) // a series that is new in a report that has all totals
	restarted.serve(answered, 2)
	old.send(false)
	restarted.send(false)
	if n := s.counted(5); n != 7 {
		t.Errorf("%d requests; want 7", n)
	}
}

func TestSeriesOfAPartialReportThatWereNotSentYetDoNotCount(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	p := s.proxy("one", 7, time.Hour)
	p.report.Partial = true
	p.serve(answered, 1_000_000)
	p.send(false)
	s.pass(pulse.Interval)
	p.serve(refused, 1_000_000) // of long ago: it did not fit into the first report
	p.send(false)
	s.pass(time.Minute)
	p.serve(refused, 5)
	p.send(false)
	if n := s.counted(5); n != 5 {
		t.Errorf("%d requests; want 5", n)
	}
}

func TestTotalsThatFallAreNoTraffic(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	p := s.proxy("one", 7, 0)
	p.serve(answered, 10)
	p.send(false)
	p.serve(answered, -4)
	p.send(false)
	p.serve(answered, 1)
	p.send(false)
	if n := s.counted(5); n != 11 {
		t.Errorf("%d requests; want 11", n)
	}
}

func TestASilentProxyIsUnknownAndNotIdle(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	one, two := s.proxy("one", 7, 0), s.proxy("two", 8, 0)
	s.SetSessions([]Session{{7, "one"}, {8, "two"}, {9, "three"}})
	one.report.InFlight, two.report.InFlight = map[string]int64{"/v1/models": 2}, map[string]int64{"/v1/models": 5}
	two.send(false)
	frozen := s.now
	for range 6 {
		s.pass(pulse.Interval)
		one.send(false)
	}
	got := s.Now()
	want := Coverage{Heard: 1, Silent: 2, Proxies: []Proxy{
		{Name: "one", Session: 7, HeardAt: s.now, InFlight: 2},
		{Name: "three", Session: 9, Silent: true},
		{Name: "two", Session: 8, HeardAt: frozen, Silent: true, InFlight: 5},
	}}
	if diff := cmp.Diff(want, got.Coverage); diff != "" {
		t.Errorf("coverage (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"/v1/models": 2}, got.InFlight); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
	newest, before := got.History[len(got.History)-1], got.History[0]
	if len(newest.Heard) != 2 || len(before.Heard) != 0 {
		t.Errorf("%d proxies heard in the last period, %d in the first; want 2 and none", len(newest.Heard), len(before.Heard))
	}
}

func TestAProxyThatEndedOrWasReplacedIsNotMissed(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	stopped, killed, fenced := s.proxy("stopped", 7, 0), s.proxy("killed", 8, 0), s.proxy("fenced", 9, 0)
	s.SetSessions([]Session{{7, "stopped"}, {8, "killed"}, {9, "fenced"}})
	for _, p := range []*proxy{stopped, killed, fenced} {
		p.send(false)
	}
	s.pass(pulse.Interval)
	stopped.report.Last = true
	stopped.send(false)
	again := s.proxy("killed", 10, 0)
	again.report.Process = "killed again"
	s.SetSessions([]Session{{10, "killed"}})
	names := func() (all []string) {
		for _, p := range s.Coverage().Proxies {
			all = append(all, p.Name)
		}
		return all
	}
	for range 5 {
		s.pass(pulse.Interval)
		again.send(false)
	}
	if diff := cmp.Diff([]string{"fenced", "killed"}, names()); diff != "" {
		t.Errorf("proxies (-want +got):\n%s", diff)
	}
	s.pass(forgetAfter)
	again.send(false)
	if diff := cmp.Diff([]string{"killed"}, names()); diff != "" {
		t.Errorf("proxies later (-want +got):\n%s", diff)
	}
}

func TestRatesAreOfTheLastSeconds(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	p := s.proxy("one", 7, 0)
	for range 10 {
		p.serve(answered, 20)
		p.serve(refused, 2)
		p.send(false)
		s.pass(pulse.Interval)
	}
	now := s.Now()
	want := map[string]float64{"completed": 10, "refused": 1}
	got := now.Recent.Rate(pulse.Requests, now.Window, func(s pulse.Series) string { return s.Outcome })
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
}

func TestQuantilesComeFromBuckets(t *testing.T) {
	t.Parallel()
	bounds := len(pulse.FirstToken.Bounds())
	sum := &Sum{Buckets: make([]int64, bounds+1)}
	if got := sum.Quantile(pulse.FirstToken, 0.5); got != nil {
		t.Errorf("without observations: %v", *got)
	}
	sum.Buckets[1] = 90 // 10 to 25 ms
	sum.Buckets[4] = 10 // 100 to 250 ms
	for q, want := range map[float64]time.Duration{0.45: 17500 * time.Microsecond, 0.9: 25 * time.Millisecond, 0.95: 175 * time.Millisecond, 1: 250 * time.Millisecond} {
		if got := sum.Quantile(pulse.FirstToken, q); got == nil || *got != want {
			t.Errorf("quantile %v: %v; want %s", q, got, want)
		}
	}
	beyond := &Sum{Buckets: make([]int64, bounds+1)}
	beyond.Buckets[bounds] = 1
	if got := beyond.Quantile(pulse.FirstToken, 0.5); got == nil || *got != 5*time.Minute {
		t.Errorf("beyond the last bound: %v; want the bound", got)
	}
}

func TestRefusalsOfAMinuteAreCountedTogether(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	p := s.proxy("one", 7, 0)
	refusal := func(n int64, id string) pulse.Refusal {
		return pulse.Refusal{Account: "acc", Key: "key", Code: "insufficient_quota", Status: 402, N: n, FirstMS: 1500, LastMS: 500, RequestID: id}
	}
	began := s.now
	s.pass(2 * time.Second)
	p.report.Refusals = []pulse.Refusal{refusal(2, "a")}
	p.send(false)
	s.pass(2 * time.Second)
	p.report.Refusals = []pulse.Refusal{refusal(3, "b")}
	p.send(false)
	key := RefusalKey{"acc", "key", "insufficient_quota", 402, false}
	want := map[RefusalKey]*Refusal{key: {key, 5, began.Add(500 * time.Millisecond), began.Add(3500 * time.Millisecond), "b", "", "", nil}}
	if diff := cmp.Diff(want, s.refusals[began]); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}

// unwritten is a Store that has nothing yet.
type unwritten struct{ Store }

func (unwritten) Refusals(context.Context, *RefusalQuery) ([]HourlyRefusal, error) { return nil, nil }

// Whoever has the id of a refused request learns why with the next report of the proxy, long before the minute is written.
func TestRefusalIsFoundByItsRequestAsSoonAsItIsReported(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	p := s.proxy("one", 7, 0)
	owner, other := account.ID(ident.UUID{1}), account.ID(ident.UUID{2})
	id := ident.Request.Format(ident.NewAt(s.now))
	p.report.Refusals = []pulse.Refusal{{Account: owner.String(), Code: "spend_limit_exceeded", Status: 403, N: 2, FirstMS: 1500, LastMS: 500, RequestID: id}}
	s.pass(2 * time.Second)
	p.send(false)
	service := NewService(unwritten{}, s.Live, func() time.Time { return s.now })
	for name, row := range map[string]struct {
		query RefusalQuery
		found int
	}{
		"its id":              {RefusalQuery{RequestID: id}, 1},
		"its id and account":  {RefusalQuery{RequestID: id, Account: &owner, Code: "spend_limit_exceeded"}, 1},
		"another account":     {RefusalQuery{RequestID: id, Account: &other}, 0},
		"another code":        {RefusalQuery{RequestID: id, Code: "insufficient_quota"}, 0},
		"some project":        {RefusalQuery{RequestID: id, Project: project.None, Account: &owner}, 0}, // Postgres alone knows it
		"another id":          {RefusalQuery{RequestID: ident.Request.New()}, 0},
		"hours before":        {RefusalQuery{RequestID: id, To: s.now.Add(-3 * time.Hour)}, 0},
		"hours after":         {RefusalQuery{RequestID: id, From: s.now.Add(2 * time.Hour)}, 0},
		"no id":               {RefusalQuery{RequestID: "req_1"}, 0},
		"the list of minutes": {RefusalQuery{}, 0}, // has what is written
	} {
		found, err := service.Refusals(t.Context(), row.query)
		if err != nil || len(found) != row.found {
			t.Errorf("%s: %d found (%v); want %d", name, len(found), err, row.found)
		}
		if len(found) == 1 && (found[0].N != 2 || found[0].Status != 403 || !found[0].Hour.Equal(s.now.Truncate(time.Hour))) {
			t.Errorf("%s: found %+v", name, found[0])
		}
	}
}

func TestHealthHasBreakersAndCallsByRoute(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	began := s.now
	one, two := s.proxy("one", 7, 0), s.proxy("two", 8, 0)
	calls := func(p *proxy, outcome string, n int64) {
		p.serve(pulse.Series{Measure: pulse.Attempts, Provider: "prv", Route: "rte", Outcome: outcome}, n)
	}
	calls(one, "ok", 10)
	calls(one, "unavailable", 3)
	one.send(false)
	s.pass(10 * time.Minute)
	calls(two, "unavailable", 2)
	two.report.Breakers = []pulse.Breaker{{Route: "rte", State: pulse.Open, SinceMS: 4000, NextTryMS: 1000, Class: "unavailable", FailedMS: 2000, CooldownMS: 3000}}
	two.send(false)
	one.report.Breakers = []pulse.Breaker{{Route: "gone", State: pulse.Open}}
	one.send(false)
	one.report.Breakers = []pulse.Breaker{{Route: "rte", State: pulse.Closed, Failures: 1, Class: "timeout", FailedMS: 500}}
	one.send(false)
	now, got := s.now, s.Health()
	want := map[string]*RouteHealth{"rte": {
		Calls: [3]Calls{{2, 2}, {2, 2}, {15, 5}},
		Breakers: []ProxyBreaker{
			{Proxy: "one", State: pulse.Closed, ReportedAt: now, Failures: 1, Class: "timeout", FailedAt: now.Add(-500 * time.Millisecond)},
			{
				Proxy: "two", State: pulse.Open, ReportedAt: now, Since: now.Add(-4 * time.Second), NextTry: now.Add(time.Second), Class: "unavailable",
				FailedAt: now.Add(-2 * time.Second), AsideUntil: now.Add(3 * time.Second),
			},
		},
	}}
	if diff := cmp.Diff(want, got.Routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if got.Heard != 2 || !got.Since.Equal(began) {
		t.Errorf("%d heard, since %s", got.Heard, got.Since)
	}
	s.pass(silentAfter + time.Second)
	if later := s.Health().Routes["rte"].Breakers; !later[0].Silent || !later[1].Silent || !later[0].ReportedAt.Equal(now) {
		t.Errorf("breakers of silent proxies: %+v", later)
	}
}

func TestMinutesAreDueAfterTheOthersHadTheirChance(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.pass(30 * time.Second)
	s.Live = NewLive(func() time.Time { return s.now }) // began within a minute
	p := s.proxy("one", 7, 0)
	heard := func() {
		for range 30 {
			p.serve(answered, 1)
			p.send(false)
			s.pass(pulse.Interval)
		}
	}
	due := func(want ...int) {
		t.Helper()
		var got []int
		for _, m := range s.minutes() {
			got = append(got, m.At.Minute())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("minutes due at %s (-want +got):\n%s", s.now.Format(time.TimeOnly), diff)
		}
	}
	heard() // until 9:01:30
	s.pass(-time.Second)
	due()
	s.pass(time.Second)
	due(0)  // of which half a minute was heard
	heard() // until 9:02:30
	due(0, 1)
	s.SetSessions([]Session{{7, "one"}, {8, "silent"}})
	s.pass(33 * time.Second) // 9:03:03
	due(0, 1)
	s.pass(time.Second)
	due(0, 1)
	s.pass(16 * time.Second) // 9:03:20
	due(0, 1, 2)
}

func TestAMinuteHasABoundedNumberOfRowsAndLosesNoCount(t *testing.T) {
	t.Parallel()
	p := newPeriod(time.Time{})
	for i := range 3 * maxRows {
		p.Sums[pulse.Series{Measure: pulse.Attempts, Route: strconv.Itoa(i), Outcome: "ok"}] = &Sum{N: int64(i)}
	}
	p.Sums[pulse.Series{Measure: pulse.Tokens, Model: "m"}] = &Sum{N: 1}
	rows := p.rows()
	if len(rows) > maxRows || len(rows) < maxRows/2 {
		t.Errorf("%d rows; want nearly %d", len(rows), maxRows)
	}
	left := map[pulse.Measure]int64{}
	for _, r := range rows {
		left[r.Measure] += r.N
	}
	if want := int64(3*maxRows*(3*maxRows-1)) / 2; left[pulse.Attempts] != want || left[pulse.Tokens] != 1 {
		t.Errorf("%v are left; want %d attempts and one token", left, want)
	}
}

func TestProxyThatSendsEverNewNamesTakesBoundedMemory(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	for i := range maxProcesses + 10 {
		name := strconv.Itoa(i)
		r := pulse.Report{V: 1, Proxy: "proxy", Process: name, Totals: []pulse.Total{{Series: pulse.Series{Measure: pulse.Requests, Code: name}, N: 1}}}
		for j := range 5 {
			r.Refusals = append(r.Refusals, pulse.Refusal{Code: name + "/" + strconv.Itoa(j), Status: 402, N: 1})
		}
		s.Receive(&r)
	}
	if n := len(s.processes); n != maxProcesses {
		t.Errorf("%d processes are kept", n)
	}
	period := s.short.at(s.now)
	counted := int64(0)
	period.Each(pulse.Requests, func(_ pulse.Series, sum *Sum) { counted += sum.N })
	if n := len(period.Sums); n > maxPeriodSeries+1 || counted != maxProcesses+10 {
		t.Errorf("%d series are kept, with %d requests", n, counted)
	}
	refusals := int64(0)
	for _, r := range s.refusals[s.now.Truncate(time.Minute)] {
		refusals += r.N
	}
	if n := len(s.refusals[s.now.Truncate(time.Minute)]); n > maxRefusals+1 || refusals != 5*(maxProcesses+10) {
		t.Errorf("%d refusals are kept, with %d requests", n, refusals)
	}
}

func TestMembersLeftOutAreThoseOfTheLastHour(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	p := s.proxy("one", 1, 0)
	p.send(false)
	p.serve(pulse.Series{Measure: pulse.LeftOut, Provider: "prv", Route: "rte", Outcome: "store"}, 3)
	s.pass(2 * time.Second)
	p.send(false)
	want := []LeftOut{{Provider: "prv", Route: "rte", Member: "store", Calls: 3}}
	if diff := cmp.Diff(want, s.LeftOut()); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if diff := cmp.Diff(want, s.Health().LeftOut); diff != "" {
		t.Errorf("health: want -, got +:\n%s", diff)
	}
	for range 70 {
		s.pass(time.Minute)
		p.send(false)
	}
	if got := s.LeftOut(); got != nil {
		t.Errorf("an hour later: %+v", got)
	}
}

func TestDoubtsAboutUsageAreThoseOfTheLastHour(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	p := s.proxy("one", 1, 0)
	low := pulse.Series{Measure: pulse.Doubts, Provider: "prv", Outcome: "low_output"}
	calls := pulse.Series{Measure: pulse.Attempts, Provider: "prv", Route: "rte", Outcome: "ok"}
	p.send(false)
	p.serve(low, 3)
	p.serve(calls, 100)
	p.serve(pulse.Series{Measure: pulse.Attempts, Provider: "prv", Route: "rte", Outcome: "timeout"}, 7)
	s.pass(2 * time.Second)
	p.send(false)
	want := []UsageDoubt{{Provider: "prv", Reason: "low_output", Answers: 3, Of: 100}}
	if diff := cmp.Diff(want, s.UsageDoubts()); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if diff := cmp.Diff(want, s.Health().Doubts); diff != "" {
		t.Errorf("health: want -, got +:\n%s", diff)
	}
	for range 70 {
		s.pass(time.Minute)
		p.send(false)
	}
	if got := s.UsageDoubts(); got != nil {
		t.Errorf("an hour later: %+v", got)
	}
}
