package trafficapi_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/pulse"
)

// proxies replaces the proxies: reports are given to Live, and lines to the open tails.
type proxies struct {
	*server
	live     *traffic.Live
	stopping chan struct{}
	// asked has the requests for tails, opened the functions that take their lines.
	asked  chan pulse.Tail
	opened chan func(proxy string, l *pulse.Lines)
}

func (p *proxies) Tail(_ pulse.Tail, handle func(string, *pulse.Lines)) (ask func(pulse.Tail) error, stop func(), err error) {
	p.opened <- handle
	return func(q pulse.Tail) error { p.asked <- q; return nil }, func() {}, nil
}

func setupTraffic(t *testing.T) *proxies {
	t.Helper()
	p := &proxies{
		live: traffic.NewLive(nil), stopping: make(chan struct{}), asked: make(chan pulse.Tail, 100), opened: make(chan func(string, *pulse.Lines), 100),
	}
	p.server = startWith(t, nil, func(cfg *httpapi.Config) {
		cfg.Traffic, cfg.Tails, cfg.Stopping = p.live, traffic.NewTails(p, cfg.Log, nil), p.stopping
	})
	return p
}

func (p *proxies) report(name string, totals ...pulse.Total) {
	p.live.Receive(&pulse.Report{V: 1, Proxy: name, Process: name, Session: 7, InFlight: map[string]int64{"/v1/models": 3}, Totals: totals})
}

// open opens a stream.
func (p *proxies) open(path, accept string) (*http.Response, *bufio.Scanner) {
	p.T.Helper()
	r, err := http.NewRequestWithContext(p.T.Context(), http.MethodGet, p.URL+path, http.NoBody)
	servertest.Check(p.T, err)
	r.Header.Set("Authorization", "Bearer "+servertest.BootstrapToken)
	r.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(r)
	servertest.Check(p.T, err)
	p.T.Cleanup(func() { _ = response.Body.Close() })
	return response, bufio.NewScanner(response.Body)
}

func TestTrafficOfNoProxyIsUnknown(t *testing.T) {
	t.Parallel()
	p := setupTraffic(t)
	p.live.SetSessions([]traffic.Session{{ID: 7, Name: "one"}})
	got, err := p.API.GetTraffic(t.Context())
	servertest.Check(t, err)
	if v := got.Value; v.Heard != 0 || v.Silent != 1 || v.Current != nil || len(v.History) != 90 || v.History[89].Requests != nil {
		t.Errorf("got %s; want no figures and a silent proxy", got.Body)
	}
}

func TestTrafficHasTheFiguresOfTheHeardProxies(t *testing.T) {
	t.Parallel()
	p := setupTraffic(t)
	p.report("one")
	p.report("two")
	got, err := p.API.GetTraffic(t.Context())
	servertest.Check(t, err)
	if v := got.Value; v.Heard != 2 || v.Silent != 0 || v.Current == nil || v.Current.InFlight["/v1/models"] != 6 || v.Current.ChargedPerMinute != "0.00" || v.Current.TtftMS != nil {
		t.Errorf("got %s", got.Body)
	}
}

func TestStreamsEndWhenTheServerStops(t *testing.T) {
	t.Parallel()
	p := setupTraffic(t)
	_, now := p.open("/admin/v1/traffic/stream", "text/event-stream")
	_, tail := p.open("/admin/v1/requests/tail", "application/x-ndjson")
	if !now.Scan() || now.Text() != "event: traffic" || !now.Scan() || !strings.HasPrefix(now.Text(), `data: {"at":`) {
		t.Errorf("the first event begins with %q", now.Text())
	}
	close(p.stopping)
	for now.Scan() { // the rest of the event
	}
	last := ""
	for tail.Scan() {
		last = tail.Text()
	}
	if now.Err() != nil || tail.Err() != nil || last != `{"type":"end"}` {
		t.Errorf("ended with %v and %v, after %q", now.Err(), tail.Err(), last)
	}
}

func TestTailShowsRequestsAsTheyEnd(t *testing.T) {
	t.Parallel()
	p := setupTraffic(t)
	p.report("one")
	account, project, key := ident.Account.New(), ident.Project.New(), ident.Key.New()
	response, events := p.open("/admin/v1/requests/tail?account_id="+account+"&project_id="+project+"&key_id="+key+"&model=m&route=rte_1&status_class=4&code=insufficient_quota", "application/x-ndjson")
	handle, asked := <-p.opened, <-p.asked
	want := pulse.Filter{Account: account, Project: project, Key: key, Model: "m", Route: "rte_1", Class: 4, Code: "insufficient_quota"}
	if asked.Filter != want || asked.Closed || asked.ID == "" {
		t.Errorf("the proxies were asked for %+v; want %+v", asked, want)
	}
	next := func() (e adminclient.TailEvent) {
		t.Helper()
		if !events.Scan() {
			t.Fatalf("the stream has ended: %v", events.Err())
		}
		servertest.Check(t, json.Unmarshal(events.Bytes(), &e))
		return e
	}
	if e := next(); e.Type != adminclient.TailEventTypeCoverage || *e.Heard != 1 || *e.Silent != 0 {
		t.Errorf("first event: %+v", e)
	}
	handle("one", &pulse.Lines{ID: asked.ID, Lines: []pulse.Line{{
		EndedMS: 1_772_528_400_000, RequestID: "req_1", Method: "POST", Endpoint: "/v1/chat/completions", Status: 402, Outcome: "refused", Code: "insufficient_quota",
		Account: "acc_1", Project: "prj_1", Key: "key_1", Model: "m", DurationUS: 850, Short: &pulse.Short{
			Pool: pulse.Limit, Reason: "limit_insufficient", Wanted: 1_300_000, Free: 200_000, Scope: limit.Project, LimitID: "lim_1", ResetsMS: 1_775_001_600_000,
		},
	}}})
	e := next()
	if diff := cmp.Diff(&adminclient.Short{
		Pool: adminclient.ShortPoolLimit, Reason: "limit_insufficient", Wanted: "0.0013", Available: "0.0002", Reserved: "0.00",
		LimitScope: new(adminclient.LimitScopeProject), LimitID: new("lim_1"), LimitResetsAt: new(time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)),
	}, e.Request.Short); diff != "" {
		t.Errorf("short (-want +got):\n%s", diff)
	}
	if r := e.Request; r.Proxy != "one" || r.RequestID != "req_1" || r.Status != 402 || *r.AccountID != "acc_1" || *r.ProjectID != "prj_1" || r.Cost != nil || r.RouteID != nil {
		t.Errorf("request: %+v", e.Request)
	}
	flood := &pulse.Lines{ID: asked.ID, Dropped: 5}
	for range pulse.MaxLines + 20 {
		flood.Lines = append(flood.Lines, pulse.Line{RequestID: "req_2", Status: 402})
	}
	handle("one", flood)
	for {
		if e := next(); e.Type == adminclient.TailEventTypeDropped {
			if *e.Dropped < 25 || *e.Dropped > 26 { // the line before may be of the same second
				t.Errorf("%d dropped; want 25 or 26", *e.Dropped)
			}
			break
		}
	}
	servertest.Check(t, response.Body.Close())
	if closed := <-p.asked; !closed.Closed || closed.ID != asked.ID {
		t.Errorf("after the watcher had gone, the proxies were asked for %+v", closed)
	}
}

func TestOneReaderCannotOpenAllTailsOrStreams(t *testing.T) {
	t.Parallel()
	for path, most := range map[string]int{"/admin/v1/requests/tail": 3, "/admin/v1/traffic/stream": 25} {
		p := setupTraffic(t)
		for range most {
			if response, _ := p.open(path, ""); response.StatusCode != http.StatusOK {
				t.Fatalf("%s: got %d", path, response.StatusCode)
			}
		}
		p.refused(path, http.StatusTooManyRequests, "too_many_tails")
	}
}

// A stream may last 15 minutes, but not longer than the right to read it.
func TestStreamsEndWithTheTokenOfTheirReader(t *testing.T) {
	t.Parallel()
	p := setupTraffic(t)
	token, err := p.API.CreateToken(t.Context(), nil, adminclient.TokenCreate{Name: "reader", Scopes: []adminclient.Scope{adminclient.ScopeObserve}})
	servertest.Check(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/admin/v1/traffic/stream", http.NoBody)
	servertest.Check(t, err)
	r.Header.Set("Authorization", "Bearer "+token.Value.Secret)
	response, err := http.DefaultClient.Do(r)
	servertest.Check(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	_, err = p.API.RevokeToken(t.Context(), token.Value.ID)
	servertest.Check(t, err)
	if _, err := io.Copy(io.Discard, response.Body); err != nil { // it returns when the server ends the stream
		t.Error(err)
	}
}

func TestInvalidFilterOfATailIsRefused(t *testing.T) {
	t.Parallel()
	p := setupTraffic(t)
	p.refused("/admin/v1/requests/tail?status_class=9", http.StatusBadRequest, "invalid_input")
}

// refused fails the test unless a stream is refused with a problem.
func (p *proxies) refused(path string, status int, kind string) {
	p.T.Helper()
	response, body := p.open(path, "")
	var got adminclient.Problem
	if body.Scan() {
		servertest.Check(p.T, json.Unmarshal(body.Bytes(), &got))
	}
	if response.StatusCode != status {
		p.T.Errorf("got %d; want %d", response.StatusCode, status)
	}
	servertest.Problem(p.T, &got, status, kind)
}
