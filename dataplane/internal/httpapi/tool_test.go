package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

const responsesJSON = `{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"up-model","output":[` +
	`{"type":"web_search_call","id":"ws_1","status":"completed"},{"type":"web_search_call","id":"ws_2","status":"completed"}],` +
	`"usage":{"input_tokens":10,"output_tokens":5,"total_tokens":15}}`

// The request with hosted tools at the top level and in the input.
const toolRequest = `{"model":"text","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"},{"type":"function","name":"f"}]},` +
	`{"role":"user","content":"hi"}],"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`

func TestProviderRunToolsWithoutAPriceAreLeftOut(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, responsesJSON))
	if got := g.post("/v1/responses", toolRequest); got.status != http.StatusOK {
		t.Fatalf("got %d: %s", got.status, got.body)
	}
	sent := g.sims[0].received()[0].body
	if strings.Contains(sent, "web_search") || strings.Contains(sent, "code_interpreter") || !strings.Contains(sent, `{"type":"function","name":"f"}`) {
		t.Errorf("the provider got %s", sent)
	}
}

func TestRouteThatOffersAllToolsGetsTheRequest(t *testing.T) {
	t.Parallel()
	some := func(kinds ...string) map[catalogkv.Format]catalogkv.Params {
		row := catalogkv.Param{Policy: "forward"}
		for _, kind := range kinds {
			row.Allow = append(row.Allow, json.RawMessage(kind))
		}
		return map[catalogkv.Format]catalogkv.Params{catalogkv.Responses: {"tools": row}}
	}
	answer := jsonAnswer(http.StatusOK, responsesJSON)
	g := newGatewayWith(t, options{model: func(m *catalogkv.Model) {
		m.Prices[0].Sheet.FreeServerTool = true
		m.Routes[0].Params, m.Routes[1].Params = some(`"web_search"`), some(`"web_search"`, `"code_interpreter"`)
	}}, answer, answer, answer)
	if got := g.post("/v1/responses", toolRequest); got.status != http.StatusOK {
		t.Fatalf("got %d: %s", got.status, got.body)
	}
	for i, want := range []int{0, 1, 0} {
		if n := len(g.sims[i].received()); n != want {
			t.Errorf("route %d got %d requests; want %d", i, n, want)
		}
	}
	e := g.spool.all()[0]
	if e.Usage.ServerToolRequests != 2 || e.Cost != 20 || e.Rule != event.RuleReported {
		t.Errorf("got event %+v", e)
	}
	if n := testutil.CollectAndCount(g.metrics, "mgw_unpriced_usage_total"); n != 0 {
		t.Error("calls at the price zero raised an alarm")
	}
}

func TestCallsOfToolsWithoutAPriceRaiseAnAlarm(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, responsesJSON))
	if got := g.post("/v1/responses", `{"model":"text","input":"hi"}`); got.status != http.StatusOK {
		t.Fatalf("got %d: %s", got.status, got.body)
	}
	if e := g.spool.all()[0]; e.Usage.ServerToolRequests != 2 || e.Cost != 20 {
		t.Errorf("got event %+v", e)
	}
	if err := testutil.GatherAndCompare(g.metrics, strings.NewReader(`
# HELP mgw_unpriced_usage_total Answers whose provider reported usage without a price, by kind: server_tool for calls of tools, the kind of a secondary model, or a line (audio_in, audio_out, cache_write_1h, cache_write_12h) that is charged at the rate of plain input or output, or service_tier for an answer in a service tier that the request has not asked for or that has no price. Above zero, the operator pays for something that no client is fully charged for.
# TYPE mgw_unpriced_usage_total counter
mgw_unpriced_usage_total{kind="server_tool"} 1
`), "mgw_unpriced_usage_total"); err != nil {
		t.Error(err)
	}
}

// Audio and long caches cost several times the rate that applies to them without one of their own.
func TestAudioAndLongCachesWithoutARateRaiseAnAlarm(t *testing.T) {
	t.Parallel()
	const audio = `{"id":"c","object":"chat.completion","created":1,"model":"up-model","choices":[{"index":0,"message":{"role":"assistant","content":"x"},` +
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"audio_tokens":4}}}`
	for _, rate := range []int64{0, 5_000_000} {
		g := newGatewayWith(t, options{model: func(m *catalogkv.Model) {
			if rate > 0 && m.ID == "text" {
				m.Prices[0].Sheet.Rates[price.AudioIn] = rate
			}
		}}, jsonAnswer(http.StatusOK, audio))
		if got := g.post("/v1/chat/completions", `{"model":"text","messages":[]}`); got.status != http.StatusOK {
			t.Fatalf("got %d: %s", got.status, got.body)
		}
		if n := testutil.CollectAndCount(g.metrics, "mgw_unpriced_usage_total"); (n == 0) != (rate > 0) {
			t.Errorf("with a rate of %d for audio: %d kinds of unpriced usage", rate, n)
		}
	}
}
