package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// tieredModel has prices for the service tiers flex, priority and fast beside the default one.
func tieredModel(m *catalogkv.Model) {
	if m.Type != catalogkv.Text {
		return
	}
	m.Prices[0].Sheet.ServiceTiers = []price.ServiceTier{
		{Name: "flex", Rates: price.Rates{price.Input: 500_000, price.Output: 1_000_000}},
		{Name: "priority", Rates: price.Rates{price.Input: 2_000_000, price.Output: 4_000_000}},
		{Name: "fast", Rates: price.Rates{price.Input: 6_000_000, price.Output: 12_000_000}},
	}
}

// tierAnswers are answers with 2 tokens of input and 3 of output, by format; %s is the member that names the service tier.
var tierAnswers = map[string]struct{ json, stream string }{
	"chat": {
		`{"id":"c","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello you"},"finish_reason":"stop"}],%s"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}}`,
		`data: {"id":"c","model":"m",%[1]s"choices":[{"index":0,"delta":{"content":"hello"}}]}` + "\n\n" +
			`data: {"id":"c","model":"m",%[1]s"choices":[{"index":0,"delta":{"content":" you"}}]}` + "\n\n" +
			`data: {"id":"c","model":"m",%[1]s"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
			`data: {"id":"c","model":"m",%[1]s"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}}` + "\n\ndata: [DONE]\n\n",
	},
	"responses": {
		`{"id":"r","object":"response","model":"m","status":"completed",%s"output":[{"type":"message","content":[{"type":"output_text","text":"hello you"}]}],"usage":{"input_tokens":2,"output_tokens":3,"total_tokens":5}}`,
		"event: response.created\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"r","model":"m","status":"in_progress","service_tier":"auto","output":[]}}` + "\n\n" +
			"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":1,"delta":"hello you"}` + "\n\n" +
			"event: response.completed\n" + `data: {"type":"response.completed","sequence_number":2,"response":{"id":"r","model":"m","status":"completed",%s"output":[{"type":"message","content":[{"type":"output_text","text":"hello you"}]}],"usage":{"input_tokens":2,"output_tokens":3,"total_tokens":5}}}` + "\n\n",
	},
	"messages": {
		`{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello you"}],"stop_reason":"end_turn","usage":{%s"input_tokens":2,"output_tokens":3}}`,
		"event: message_start\n" + `data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{%s"input_tokens":2,"output_tokens":1}}}` + "\n\n" +
			"event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n" +
			"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello you"}}` + "\n\n" +
			"event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n" +
			"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}` + "\n\n" +
			"event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n",
	},
}

// tierAnswer is an answer that names a service tier.
func tierAnswer(format string, stream bool, named string) http.HandlerFunc {
	fill := strings.NewReplacer("%s", named, "%[1]s", named)
	if stream {
		return streamAnswer(fill.Replace(tierAnswers[format].stream))
	}
	return jsonAnswer(http.StatusOK, fill.Replace(tierAnswers[format].json))
}

const (
	defaultCost  = 2*1 + 3*2
	flexCost     = 1 + 3
	priorityCost = 2*2 + 3*4
	fastCost     = 2*6 + 3*12
)

// An answer is charged at the service tier that it names, and what is held covers the dearest one that can come.
func TestAnswersAreChargedAtTheServiceTierThatTheyName(t *testing.T) {
	t.Parallel()
	openAI := []string{"chat", "responses"}
	for _, tt := range []struct {
		formats []string
		asked   string // members of the request
		sent    string // the member that the provider gets
		named   string // members of the answer
		tier    string
		cost    int64
		held    float64 // how many times the reservation in the default tier
		odd     bool
	}{
		{openAI, ``, `"service_tier":"default"`, `"service_tier":"default",`, "default", defaultCost, 1, false},
		{openAI, ``, `"service_tier":"default"`, ``, "default", defaultCost, 1, false},
		{openAI, `,"service_tier":"default"`, `"service_tier":"default"`, `"service_tier":"default",`, "default", defaultCost, 1, false},
		{openAI, `,"service_tier":"priority"`, `"service_tier":"priority"`, `"service_tier":"priority",`, "priority", priorityCost, 2, false},
		{openAI, `,"service_tier":"priority"`, `"service_tier":"priority"`, `"service_tier":"default",`, "default", defaultCost, 2, false},
		{openAI, `,"service_tier":"priority"`, `"service_tier":"priority"`, ``, "priority", priorityCost, 2, false},
		{openAI, `,"service_tier":"flex"`, `"service_tier":"flex"`, `"service_tier":"flex",`, "flex", flexCost, 1, false},
		{openAI, `,"service_tier":"flex"`, `"service_tier":"flex"`, `"service_tier":"default",`, "default", defaultCost, 1, false},
		{openAI, `,"service_tier":"auto"`, `"service_tier":"auto"`, `"service_tier":"priority",`, "priority", priorityCost, 2, false},
		{openAI, `,"service_tier":"auto"`, `"service_tier":"auto"`, `"service_tier":"flex",`, "flex", flexCost, 2, false},
		{openAI, `,"service_tier":"auto"`, `"service_tier":"auto"`, ``, "default", defaultCost, 2, false},
		// Other spellings are the same names.
		{openAI, `,"service_tier":"flex"`, `"service_tier":"flex"`, `"service_tier":"Flex",`, "flex", flexCost, 1, false},
		{openAI, `,"service_tier":"priority"`, `"service_tier":"priority"`, `"service_tier":"ON-DEMAND",`, "default", defaultCost, 2, false},
		// What was not asked for is not charged at its price, but the operator hears of it.
		{openAI, ``, `"service_tier":"default"`, `"service_tier":"priority",`, "default", defaultCost, 1, true},
		{openAI, `,"service_tier":"flex"`, `"service_tier":"flex"`, `"service_tier":"priority",`, "default", defaultCost, 1, true},
		{openAI, `,"service_tier":"priority"`, `"service_tier":"priority"`, `"service_tier":"scale",`, "priority", priorityCost, 2, true},

		{[]string{"messages"}, ``, `"service_tier":"standard_only"`, `"service_tier":"standard",`, "default", defaultCost, 1, false},
		{[]string{"messages"}, `,"service_tier":"standard_only","speed":"standard"`, `"service_tier":"standard_only"`, `"service_tier":"standard","speed":"standard",`, "default", defaultCost, 1, false},
		{[]string{"messages"}, `,"service_tier":"auto"`, `"service_tier":"auto"`, `"service_tier":"priority",`, "priority", priorityCost, 2, false},
		{[]string{"messages"}, `,"service_tier":"auto"`, `"service_tier":"auto"`, `"service_tier":"standard",`, "default", defaultCost, 2, false},
		{[]string{"messages"}, `,"speed":"fast"`, `"speed":"fast"`, `"service_tier":"standard","speed":"fast",`, "fast", fastCost, 6, false},
		{[]string{"messages"}, `,"speed":"fast"`, `"service_tier":"standard_only"`, `"service_tier":"standard","speed":"standard",`, "default", defaultCost, 6, false},
		{[]string{"messages"}, `,"speed":"fast"`, `"speed":"fast"`, ``, "fast", fastCost, 6, false},
		// The mode is not the service tier: each of them can be named alone.
		{[]string{"messages"}, `,"speed":"fast"`, `"speed":"fast"`, `"service_tier":"standard",`, "fast", fastCost, 6, false},
		{[]string{"messages"}, `,"speed":"fast"`, `"speed":"fast"`, `"speed":"standard",`, "default", defaultCost, 6, false},
		{[]string{"messages"}, ``, `"service_tier":"standard_only"`, `"service_tier":"batch",`, "default", defaultCost, 1, true},
	} {
		for _, format := range tt.formats {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v%s%s", format, stream, tt.asked, tt.named), func(t *testing.T) {
					t.Parallel()
					g := newGatewayWith(t, options{model: tieredModel}, tierAnswer(format, stream, ""))
					path, body := askedRequests[format][0], askedBody(format, stream)
					g.post(path, body)
					g.sims[0].setAnswer(tierAnswer(format, stream, tt.named))
					body = strings.TrimSuffix(body, "}") + tt.asked + "}"
					if got := g.post(path, body); got.status != http.StatusOK {
						t.Fatalf("got %d: %s", got.status, got.body)
					}
					events := g.spool.all()
					plain, e := events[0].Reservation, events[1]
					if e.Usage.ServiceTier != tt.tier || int64(e.Cost) != tt.cost || e.Usage.Input != 2 || e.Usage.Output != 3 {
						t.Errorf("got %+v, cost %d; want %s at %d", e.Usage, e.Cost, tt.tier, tt.cost)
					}
					if want := int64(tt.held * float64(plain)); int64(e.Reservation) != want || e.Cost > e.Reservation {
						t.Errorf("held %d for a cost of %d; want %d", e.Reservation, e.Cost, want)
					}
					requests := g.sims[0].received()
					if sent := requests[len(requests)-1]; !strings.Contains(sent.body, tt.sent) {
						t.Errorf("the provider got %s; want %s", sent.body, tt.sent)
					}
					if alarms := testutil.CollectAndCount(g.metrics, "mgw_unpriced_usage_total"); (alarms > 0) != tt.odd {
						t.Errorf("%d alarms; want one: %v", alarms, tt.odd)
					}
				})
			}
		}
	}
}

// A service tier without prices is refused, and the choice of one is not left to the provider.
func TestServiceTierWithoutPricesIsNotSent(t *testing.T) {
	t.Parallel()
	flexOnly := func(m *catalogkv.Model) {
		if tieredModel(m); m.Type == catalogkv.Text {
			m.Prices[0].Sheet.ServiceTiers = m.Prices[0].Sheet.ServiceTiers[:1]
		}
	}
	for name, change := range map[string]func(m *catalogkv.Model){"none": nil, "flex": flexOnly} {
		for _, format := range []string{"chat", "responses", "messages"} {
			t.Run(name+" "+format, func(t *testing.T) {
				t.Parallel()
				g := newGatewayWith(t, options{model: change}, tierAnswer(format, false, ""))
				path, body := askedRequests[format][0], strings.TrimSuffix(askedBody(format, false), "}")
				asked, refused := `"service_tier":"priority"`, "service_tier"
				if format == "messages" {
					asked, refused = `"speed":"fast"`, "speed"
				}
				got := g.post(path, body+","+asked+"}")
				if got.status != http.StatusBadRequest || !strings.Contains(got.body, refused) || !strings.Contains(got.body, "is not supported with this model") {
					t.Errorf("got %d: %s", got.status, got.body)
				}

				if got := g.post(path, body+`,"service_tier":"auto"}`); got.status != http.StatusOK {
					t.Fatalf("got %d: %s", got.status, got.body)
				}
				sent := g.sims[0].received()
				if len(sent) != 1 || !strings.Contains(sent[0].body, `"service_tier":"default"`) && !strings.Contains(sent[0].body, `"service_tier":"standard_only"`) {
					t.Errorf("the provider got %+v", sent)
				}
			})
		}
	}
}

// A route whose provider does not have the service tier is not called: its answer would be one that was not asked for.
func TestRouteWithoutServiceTiersIsNotCalledForOne(t *testing.T) {
	t.Parallel()
	const reject, cloud = "parameter", "cloud"
	for _, why := range []string{reject, cloud} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			answer := tierAnswer("messages", false, `"speed":"fast",`)
			g := newGatewayWith(t, options{
				provider: func(i int, p *catalogkv.Provider) {
					if i == 0 && why == cloud {
						p.Kind = catalogkv.Vertex
					}
				},
				model: func(m *catalogkv.Model) {
					if tieredModel(m); m.Type == catalogkv.Text && why == reject {
						m.Routes[0].Params = map[catalogkv.Format]catalogkv.Params{catalogkv.Messages: {"speed": {Policy: "reject"}}}
					}
				},
			}, answer, answer)
			body := strings.TrimSuffix(askedBody("messages", false), "}") + `,"speed":"fast"}`
			if got := g.post("/v1/messages", body); got.status != http.StatusOK {
				t.Fatalf("got %d: %s", got.status, got.body)
			}
			if n, m := len(g.sims[0].received()), len(g.sims[1].received()); n != 0 || m != 1 {
				t.Errorf("the routes got %d and %d requests; want 0 and 1", n, m)
			}
			if beta := g.sims[1].received()[0].header.Get("Anthropic-Beta"); beta != "fast-mode-2026-02-01" {
				t.Errorf("got the beta features %q", beta)
			}
		})
	}
}

// A provider that refuses a service tier is not called again without it: the client would pay for what it does not get.
func TestServiceTierOfAClientIsNotLeftOut(t *testing.T) {
	t.Parallel()
	refusal := jsonAnswer(http.StatusBadRequest, `{"error":{"message":"Unknown parameter: 'service_tier'.","type":"invalid_request_error","param":"service_tier","code":"unknown_parameter"}}`)
	g := newGatewayWith(t, options{model: tieredModel}, refusal)
	body := strings.TrimSuffix(askedBody("chat", false), "}") + `,"service_tier":"priority"}`
	if got := g.post("/v1/chat/completions", body); got.status < 400 {
		t.Errorf("got %d: %s", got.status, got.body)
	}
	for _, sent := range g.sims[0].received() {
		if !strings.Contains(sent.body, `"service_tier":"priority"`) {
			t.Errorf("the provider got %s", sent.body)
		}
	}
}

// A route that leaves out the service tier that was asked for, or replaces it, is not called: its answer would be charged at the price
// of the tier if it names none.
func TestRouteThatDoesNotSendTheServiceTierIsNotCalledForOne(t *testing.T) {
	t.Parallel()
	param := func(p catalogkv.Param) map[catalogkv.Format]catalogkv.Params {
		return map[catalogkv.Format]catalogkv.Params{catalogkv.Chat: {"service_tier": p}}
	}
	drop, force := param(catalogkv.Param{Policy: "drop"}), param(catalogkv.Param{Policy: "force", Value: json.RawMessage(`"default"`)})
	forward, reject := param(catalogkv.Param{Policy: "forward"}), param(catalogkv.Param{Policy: "reject", Allow: []json.RawMessage{[]byte(`"default"`)}})
	only := param(catalogkv.Param{Policy: "forward", Allow: []json.RawMessage{[]byte(`"default"`), []byte(`"flex"`)}})
	for _, tt := range []struct {
		name          string
		model         map[catalogkv.Format]catalogkv.Params
		first, second map[catalogkv.Format]catalogkv.Params
		asked         string
		calls         [2]int
		tier          string // that is charged if the answer names none
		held          int64  // how many times the reservation of the default tier
	}{
		{"dropped by the first", nil, drop, nil, "priority", [2]int{0, 1}, "priority", 2},
		{"forced by the first", nil, force, nil, "priority", [2]int{0, 1}, "priority", 2},
		{"rejected by the model, not by a route", reject, nil, forward, "priority", [2]int{0, 1}, "priority", 2},
		{"dropped by the model, not by a route", drop, nil, forward, "priority", [2]int{0, 1}, "priority", 2},
		{"some of them by the first", nil, only, nil, "priority", [2]int{0, 1}, "priority", 2},
		{"sent by the first", nil, only, nil, "flex", [2]int{1, 0}, "flex", 1},
		{"forwarded by the model", forward, nil, nil, "priority", [2]int{1, 0}, "priority", 2},
		{"dropped by all", nil, drop, drop, "priority", [2]int{1, 0}, "default", 1},
		{"the choice of the provider", nil, drop, nil, "auto", [2]int{1, 0}, "default", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			answer := tierAnswer("chat", false, "")
			g := newGatewayWith(t, options{model: func(m *catalogkv.Model) {
				if tieredModel(m); m.Type == catalogkv.Text {
					m.Params, m.Routes[0].Params, m.Routes[1].Params = tt.model, tt.first, tt.second
				}
			}}, answer, answer)
			body := askedBody("chat", false)
			g.post("/v1/chat/completions", body)
			body = strings.TrimSuffix(body, "}") + `,"service_tier":"` + tt.asked + `"}`
			before := [2]int{len(g.sims[0].received()), len(g.sims[1].received())}
			if got := g.post("/v1/chat/completions", body); got.status != http.StatusOK {
				t.Fatalf("got %d: %s", got.status, got.body)
			}
			calls := [2]int{len(g.sims[0].received()) - before[0], len(g.sims[1].received()) - before[1]}
			events := g.spool.all()
			plain, e := events[0], events[1]
			if calls != tt.calls || e.Usage.ServiceTier != tt.tier || int64(e.Reservation) != tt.held*int64(plain.Reservation) {
				t.Errorf("%d calls, charged as %s, %d held, of which one in the default tier has %d", calls, e.Usage.ServiceTier, e.Reservation, plain.Reservation)
			}
		})
	}
}

// Who leaves before the answer says which service tier the provider has chosen pays the dearest: otherwise leaving just before the end
// would make it the default one. An answer that breaks off by itself is charged at that.
func TestLeavingBeforeTheServiceTierIsNamedIsNotCheaper(t *testing.T) {
	t.Parallel()
	started := func(named string) string {
		return responseEvent("created", `"response":{"id":"r","model":"up-model","status":"in_progress",`+named+`"output":[]}`) +
			responseEvent("output_text.delta", `"delta":"Hello there."`)
	}
	completed := responseEvent("completed", `"response":{"id":"r","status":"completed","model":"up-model","output":[{"type":"message"}],"service_tier":"default","usage":{"input_tokens":2,"output_tokens":3}}`)
	for _, tt := range []struct{ name, asked, stream, want string }{
		{"choice", "auto", started(`"service_tier":"auto",`), "priority"},
		{"named", "auto", started(`"service_tier":"default",`), "default"},
		{"no name at all", "auto", started(``), "default"},
		{"asked for", "flex", started(`"service_tier":"auto",`), "flex"},
		{"default", "default", started(`"service_tier":"auto",`), "default"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body := `{"model":"text","input":"hi","stream":true,"service_tier":"` + tt.asked + `"}`
			inBubble(t, options{routes: 1, model: tieredModel, providers: &pausingProvider{tt.stream, completed, time.Hour}}, func(t *testing.T, g *gateway) {
				g.readAndLeave("/v1/responses", body, "Hello")
				if e := g.spool.next(t); e.Status != event.ClientGone || e.Usage.ServiceTier != tt.want || e.Cost > e.Reservation {
					t.Errorf("left: %s, charged as %s, %d of %d held; want %s", e.Status, e.Usage.ServiceTier, e.Cost, e.Reservation, tt.want)
				}
				if alarms := testutil.CollectAndCount(g.metrics, "mgw_unpriced_usage_total"); alarms != 0 {
					t.Errorf("%d alarms", alarms)
				}
			})
			if tt.name != "choice" {
				return
			}
			inBubble(t, options{routes: 1, model: tieredModel, providers: &pausingProvider{tt.stream, ":\n\n", time.Second}}, func(t *testing.T, g *gateway) {
				c := g.ask("/v1/responses", body)
				go func() { _, _ = io.Copy(io.Discard, c) }()
				if e := g.spool.next(t); e.Status != event.Failed || e.Usage.ServiceTier != "default" {
					t.Errorf("broken off: %s, charged as %s", e.Status, e.Usage.ServiceTier)
				}
				_ = c.Close()
			})
		})
	}
}
