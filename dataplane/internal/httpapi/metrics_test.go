package httpapi_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/pulse"
)

// metric returns the value of a counter or gauge, summed over its labels.
func (g *gateway) metric(name string) (sum float64) {
	g.t.Helper()
	families, err := g.metrics.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return sum
		}
	}
	g.t.Fatalf("there is no metric %s", name)
	return 0
}

func TestAttemptsAndTokensAreCounted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(200, chatJSON))
	if got := g.post("/v1/chat/completions", `{"model":"text","messages":[]}`); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	if n := g.metric("mgw_provider_attempts_total"); n != 1 {
		t.Errorf("%v attempts; want 1", n)
	}
	if n := g.metric("mgw_tokens_total"); n != 15 {
		t.Errorf("%v tokens; want 15", n)
	}
}

func TestTokensFromThePromptCacheAreCountedByRoute(t *testing.T) {
	t.Parallel()
	const body = `{"choices":[{"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":1000,"completion_tokens":2,"total_tokens":1002,"prompt_tokens_details":{"cached_tokens":900}}}`
	long := `{"model":"text","messages":[{"role":"user","content":"` + strings.Repeat("word ", 1000) + `"}]}`
	g := newGateway(t, jsonAnswer(200, body))
	for range 2 {
		if got := g.post("/v1/chat/completions", long); got.status != 200 {
			t.Fatalf("got %d %s", got.status, got.body)
		}
	}
	g.compare(`
mgw_route_input_tokens_total{cache="hit",route="rte_0_text"} 1800
mgw_route_input_tokens_total{cache="miss",route="rte_0_text"} 200
`)
}

// compare compares metrics with their text form without help and type.
func (g *gateway) compare(want string) {
	g.t.Helper()
	var text strings.Builder
	names := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(want) + "\n") {
		name, _, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		names[name] = true
		text.WriteString(line)
	}
	families, err := g.metrics.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	var head strings.Builder
	var all []string
	for _, family := range families {
		if name := family.GetName(); names[name] {
			head.WriteString("# HELP " + name + " " + family.GetHelp() + "\n# TYPE " + name + " " + strings.ToLower(family.GetType().String()) + "\n")
			for line := range strings.Lines(text.String()) {
				if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
					head.WriteString(line)
				}
			}
			all = append(all, name)
		}
	}
	if len(all) != len(names) {
		g.t.Errorf("there are only the metrics %v", all)
	}
	if err := testutil.GatherAndCompare(g.metrics, strings.NewReader(head.String()), all...); err != nil {
		g.t.Error(err)
	}
}

// observations returns how often a histogram observed, by the value of its label.
func (g *gateway) observations(name string) map[string]uint64 {
	g.t.Helper()
	families, err := g.metrics.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				counts[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	return counts
}

func TestTokensChargesAndReservationsAreCountedByModel(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(200, chatJSON))
	for range 2 {
		g.post("/v1/chat/completions", `{"model":"text","messages":[],"max_tokens":100}`)
	}
	reserved := 0.0
	for range 2 {
		e := g.spool.next(t)
		reserved += float64(e.Reservation) / 1e9
	}
	if got := g.metric("mgw_reserved_total"); reserved == 0 || got != reserved {
		t.Errorf("%v reserved; want %v", got, reserved)
	}
	g.compare(`
mgw_tokens_total{kind="cache_write",model="text"} 0
mgw_tokens_total{kind="cached_input",model="text"} 0
mgw_tokens_total{kind="input",model="text"} 20
mgw_tokens_total{kind="output",model="text"} 10
mgw_charged_total{model="text"} 4e-08
mgw_model_requests_total{model="text",outcome="completed"} 2
`)
}

func TestAModelOfAClientIsNoLabel(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(200, chatJSON))
	g.post("/v1/chat/completions", `{"model":"invented","messages":[]}`)
	families, err := g.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if strings.Contains(family.String(), "invented") {
			t.Errorf("a client has chosen a label: %v", family)
		}
	}
}

func TestDoubtfulUsageIsCountedByProviderAndReason(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(200, strings.Replace(chatJSON, "usage", "other", 1)))
	g.post("/v1/chat/completions", `{"model":"text","messages":[]}`)
	g.sims[0].setAnswer(jsonAnswer(200, strings.Replace(chatJSON, `"prompt_tokens":10,"completion_tokens":5,"total_tokens":15`, `"prompt_tokens":0,"completion_tokens":5`, 1)))
	g.post("/v1/chat/completions", `{"model":"text","messages":[]}`)
	g.compare(`
mgw_usage_doubts_total{provider="prv_0",reason="missing"} 1
mgw_usage_doubts_total{provider="prv_0",reason="no_input"} 1
`)
	totals := g.measured.Totals()
	for _, reason := range []string{"missing", "no_input"} {
		if !slices.ContainsFunc(totals, func(total pulse.Total) bool {
			return total.Series == pulse.Series{Measure: pulse.Doubts, Provider: "prv_0", Outcome: reason} && total.N == 1
		}) {
			t.Errorf("the control plane does not hear of %s: %+v", reason, totals)
		}
	}
}

func TestFailoversAndWaitsAreCountedByProvider(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusInternalServerError, "{}"), streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone))
	if got := g.post("/v1/chat/completions", `{"model":"text","messages":[],"stream":true}`); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	g.compare(`mgw_failovers_total{class="unavailable",from="prv_0"} 1`)
	if waits := g.observations("mgw_upstream_seconds"); waits["prv_0"] != 1 || waits["prv_1"] != 1 {
		t.Errorf("waits by provider: %v; want one of each", waits)
	}
	if tokens := g.observations("mgw_time_to_first_token_seconds"); tokens["prv_0"] != 0 || tokens["prv_1"] != 1 {
		t.Errorf("first tokens by provider: %v; want one of prv_1", tokens)
	}
}

func TestRequestsInFlightAreCountedByEndpoint(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	g := newGateway(t, stallAfter(left, chatHead, chatText))
	ctx, cancel := context.WithCancel(t.Context())
	response := g.begin(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"text","messages":[],"stream":true}`))
	defer func() { _ = response.Body.Close() }()
	if n := g.metric("mgw_requests_in_flight"); n != 1 {
		t.Errorf("%v requests in flight; want the stream", n)
	}
	cancel()
	<-left
	g.stop() // waits for the handler
	if n := g.metric("mgw_requests_in_flight"); n != 0 {
		t.Errorf("%v requests in flight; want none", n)
	}
}
