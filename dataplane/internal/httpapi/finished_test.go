package httpapi_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/dataplane/internal/reporter"
	"modelgateway/shared/limit"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// report returns the next report of the proxy.
func (g *gateway) report() (r pulse.Report) {
	g.t.Helper()
	sender := reporter.New(reporter.Config{
		Proxy: "proxy", SessionFunc: func() wire.SessionID { return sessionID }, DrainingFunc: func() bool { return false }, InFlightFunc: g.measured.InFlightByEndpoint,
		SpoolFunc: func() pulse.Spool { return pulse.Spool{} }, TotalsFunc: g.measured.Totals,
		BreakersFunc: func() []pulse.Breaker { return g.picker.Health(g.models.HasRoute) }, Refusals: g.refusals, Log: slog.New(slog.DiscardHandler),
		SendFunc: func(data []byte) error { return json.Unmarshal(data, &r) },
	})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	sender.Run(ended)
	return r
}

func TestReportHasTheRefusalsWithWhatWasShort(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	const body = `{"model":"text","messages":[],"max_tokens":100}`
	for account, units := range map[string][3]int64{"acc_limit": {1000, 5, 1}, "acc_poor": {7, 1000, 1}, "acc_slots": {1000, 1000, 0}} {
		g.plane.open(account, units[0], units[1], units[2])
		g.post("/v1/chat/completions", body, "Authorization", "Bearer "+g.issue("key_of_"+account, account))
	}
	g.post("/v1/chat/completions", `{"model":"none","messages":[]}`)
	g.post("/v1/chat/completions", body, "Authorization", "Bearer none")
	g.post("/v1/chat/completions", body) // is answered
	g.plane.open("acc_suspended", 1000, 1000, 1)
	suspended := g.issue("key_suspended", "acc_suspended")
	g.plane.deactivate(g.hasher.Hash(suspended))
	g.post("/v1/chat/completions", body, "Authorization", "Bearer "+suspended)
	r := g.report()
	slices.SortFunc(r.Refusals, func(a, b pulse.Refusal) int { return strings.Compare(a.Account, b.Account) })
	want := []pulse.Refusal{
		{Code: "invalid_api_key", Status: 401, N: 1},
		{Account: theAccount, Key: "key_1", Code: "model_not_found", Status: 404, N: 1},
		{Account: "acc_suspended", Key: "key_suspended", Code: "invalid_api_key", Status: 401, N: 1, Reason: pulse.ReasonKeyInactive},
		{Account: "acc_limit", Key: "key_of_acc_limit", Code: "spend_limit_exceeded", Status: 403, N: 1, Model: "text", Short: &pulse.Short{Pool: pulse.Limit, Reason: "limit_insufficient", Wanted: 201, Free: 5, Scope: limit.Key, LimitID: "key_of_acc_limit"}},
		{Account: "acc_poor", Key: "key_of_acc_poor", Code: "insufficient_quota", Status: 402, N: 1, Model: "text", Short: &pulse.Short{Pool: pulse.Balance, Reason: "balance_insufficient", Wanted: 201, Free: 7}},
		{Account: "acc_slots", Key: "key_of_acc_slots", Code: "rate_limit_exceeded", Status: 429, N: 1, Model: "text", Short: &pulse.Short{Pool: pulse.Slots, Reason: "no_slot", Wanted: 1, Scope: limit.Account}},
	}
	slices.SortFunc(want, func(a, b pulse.Refusal) int { return strings.Compare(a.Account, b.Account) })
	if diff := cmp.Diff(want, r.Refusals, cmpopts.IgnoreFields(pulse.Refusal{}, "FirstMS", "LastMS", "RequestID")); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
	for _, refusal := range r.Refusals {
		if refusal.RequestID == "" {
			t.Errorf("%+v names no request", refusal)
		}
	}
}

func TestReportHasTheTotalsByRoute(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusInternalServerError, "{}"), streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone))
	g.post("/v1/chat/completions", `{"model":"text","messages":[],"stream":true}`)
	got := map[pulse.Series]int64{}
	r := g.report()
	for _, total := range r.Totals {
		got[total.Series] = total.N
		if bounds := total.Measure.Bounds(); bounds != nil && len(total.Buckets) != len(bounds)+1 {
			t.Errorf("%+v has %d buckets", total.Series, len(total.Buckets))
		}
	}
	const endpoint = "/v1/chat/completions"
	event := g.spool.next(t)
	want := map[pulse.Series]int64{
		{Measure: pulse.Requests, Endpoint: endpoint, Status: 200, Outcome: "completed"}:          1,
		{Measure: pulse.ModelRequests, Model: "text", Outcome: "completed"}:                       1,
		{Measure: pulse.Attempts, Provider: "prv_0", Route: "rte_0_text", Outcome: "unavailable"}: 1,
		{Measure: pulse.Attempts, Provider: "prv_1", Route: "rte_1_text", Outcome: "ok"}:          1,
		{Measure: pulse.Tokens, Model: "text", Provider: "prv_1", Outcome: "input"}:               event.Usage.Input,
		{Measure: pulse.Tokens, Model: "text", Provider: "prv_1", Outcome: "output"}:              event.Usage.Output,
		{Measure: pulse.Charges, Model: "text", Provider: "prv_1"}:                                int64(event.Cost),
		{Measure: pulse.StreamEnds, Outcome: "completed"}:                                         1,
		{Measure: pulse.FirstToken, Provider: "prv_1", Route: "rte_1_text"}:                       1,
		{Measure: pulse.Duration, Endpoint: endpoint, Provider: "prv_1", Route: "rte_1_text"}:     1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if len(r.Breakers) != 1 || r.Breakers[0].Route != "rte_0_text" || r.Breakers[0].State != pulse.Closed || r.Breakers[0].Class != "unavailable" || r.Breakers[0].Failures != 1 {
		t.Errorf("breakers %+v; want that of the failed route with one failure", r.Breakers)
	}
}

func TestTailHasALineForEachFinishedRequest(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	g.plane.set(func(p *controlPlane) {
		hash := g.hasher.Hash(g.key)
		record := p.records[hash]
		record.ProjectID = "prj_1"
		p.records[hash] = record
	})
	lines := make(chan pulse.Line, 10)
	g.tails.Follow(pulse.Tail{ID: "all"}, func(l pulse.Lines) {
		for _, line := range l.Lines {
			lines <- line
		}
	})
	defer g.tails.Close()
	g.post("/v1/chat/completions", `{"model":"text","messages":[]}`)
	event := g.spool.next(t)
	want := pulse.Line{
		RequestID: event.RequestID, Method: "POST", Endpoint: "/v1/chat/completions", Status: 200, Outcome: "completed", Account: theAccount, Project: "prj_1", Key: "key_1", Model: "text",
		Provider: "prv_0", Route: "rte_0_text", Attempts: 1, Charged: true, InputTokens: event.Usage.Input, OutputTokens: event.Usage.Output, CostNano: int64(event.Cost),
	}
	got := <-lines
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(pulse.Line{}, "EndedMS", "DurationUS", "UpstreamUS", "FirstByteUS")); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
	if got.DurationUS < got.UpstreamUS || got.UpstreamUS == 0 || got.EndedMS == 0 {
		t.Errorf("times of %+v", got)
	}
	g.plane.open("acc_poor", 7, 1_000_000, 1)
	g.post("/v1/chat/completions", `{"model":"text","messages":[]}`, "Authorization", "Bearer "+g.issue("key_poor", "acc_poor"))
	if got := <-lines; got.Status != 402 || got.Code != "insufficient_quota" || got.Short == nil || got.Short.Free != 7 || got.Account != "acc_poor" {
		t.Errorf("refused request: %+v", got)
	}
}
