package httpapi_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
)

const refusedInclude = `{"error":{"message":"Encrypted content is not supported with this model.","type":"invalid_request_error","param":"include","code":null}}`

// refuses answers calls whose body has one of the members with the first refusal that names one, in this order, and others with
// a good answer.
func refuses(g **gateway, good http.HandlerFunc, refusals ...[2]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		calls := (*g).sims[0].received()
		for _, refusal := range refusals {
			if strings.Contains(calls[len(calls)-1].body, `"`+refusal[0]+`"`) {
				jsonAnswer(http.StatusBadRequest, refusal[1])(w, r)
				return
			}
		}
		good(w, r)
	}
}

// unknownMember is the refusal of a member in the words of a format's first provider.
func unknownMember(name string) [2]string {
	return [2]string{name, `{"error":{"message":"Unknown parameter: '` + name + `'.","type":"invalid_request_error","param":"` + name + `","code":"unknown_parameter"}}`}
}

const messagesJSON = `{"id":"msg_1","type":"message","role":"assistant","model":"up-model","content":[{"type":"text","text":"Hello"}],` +
	`"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5}}`

// The client has not asked for what the gateway adds, so it never hears of a provider that refuses it, in any format, and later
// calls do without.
func TestAddedMemberThatTheProviderRefusesIsLeftOutInASecondCall(t *testing.T) {
	t.Parallel()
	chat, responses, messages := dialects()["chat"], dialects()["responses"], dialects()["messages"]
	stream := func(d dialect) http.HandlerFunc { return streamAnswer(d.head, d.text, d.end) }
	ofMessages := [2]string{"service_tier", `{"type":"error","error":{"type":"invalid_request_error","message":"service_tier: Extra inputs are not permitted"}}`}
	both := [2]string{"store", `{"detail":[{"type":"extra_forbidden","loc":["body","store"],"msg":"Extra inputs are not permitted","input":false},{"type":"extra_forbidden","loc":["body","service_tier"],"msg":"Extra inputs are not permitted","input":"default"}]}`}
	value := [2]string{"service_tier", `{"error":{"message":"service_tier must be one of on_demand, flex","type":"invalid_request_error","param":"service_tier","code":"invalid_value"}}`}
	for _, tt := range []struct {
		name, path, body string
		good             http.HandlerFunc
		refusals         [][2]string
		// first is the number of calls of the first request.
		first int
	}{
		{"chat", chat.path, chatBody, jsonAnswer(200, chatJSON), [][2]string{unknownMember("store")}, 2},
		{"one after the other", chat.path, chatBody, jsonAnswer(200, chatJSON), [][2]string{unknownMember("store"), unknownMember("service_tier")}, 3},
		{"two at once", chat.path, chatBody, jsonAnswer(200, chatJSON), [][2]string{both}, 2},
		{"a value", chat.path, chatBody, jsonAnswer(200, chatJSON), [][2]string{value}, 2},
		{"chat stream", chat.path, chat.body, stream(chat), [][2]string{unknownMember("stream_options")}, 2},
		{"chat stream, all", chat.path, chat.body, stream(chat), [][2]string{both, unknownMember("stream_options")}, 3},
		{"the client's own options", chat.path, strings.Replace(chat.body, "{", `{"store":false,"service_tier":"auto",`, 1), stream(chat), [][2]string{both}, 2},
		{"responses", responses.path, `{"model":"text","input":"hi"}`, jsonAnswer(200, responsesJSON), [][2]string{{"include", refusedInclude}}, 2},
		{"responses, all", responses.path, `{"model":"text","input":"hi"}`, jsonAnswer(200, responsesJSON), [][2]string{unknownMember("include"), both}, 3},
		{"responses stream", responses.path, responses.body, stream(responses), [][2]string{unknownMember("store")}, 2},
		{"messages", messages.path, strings.Replace(messages.body, `"stream":true`, `"stream":false`, 1), jsonAnswer(200, messagesJSON), [][2]string{ofMessages}, 2},
		{"messages stream", messages.path, messages.body, stream(messages), [][2]string{ofMessages}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var g *gateway
			g = newGateway(t, refuses(&g, tt.good, tt.refusals...), jsonAnswer(500, "{}"))
			for i, want := range []int{tt.first, tt.first + 1} { // the second request knows
				if got := g.post(tt.path, tt.body); got.status != http.StatusOK || strings.Contains(got.body, "error\"") && !strings.Contains(got.body, `"error":null`) {
					t.Fatalf("request %d: got %d: %s", i, got.status, got.body)
				}
				calls := g.sims[0].received()
				if len(calls) != want {
					t.Fatalf("request %d: %d calls; want %d; the last with %s", i, len(calls), want, calls[len(calls)-1].body)
				}
				if e := g.spool.next(t); e.Rule != event.RuleReported || e.Route != "rte_0_text" || len(e.Attempts) != 0 {
					t.Errorf("request %d: got event %+v", i, e)
				}
			}
			if n := len(g.sims[1].received()); n != 0 {
				t.Errorf("%d calls of the second route", n)
			}
			if n := g.metric("mgw_members_left_out_total"); n < 2 {
				t.Errorf("counted %v; want one for each call without a member", n)
			}
		})
	}
}

// A stream whose usage the provider cannot be asked for is charged by an estimate, which is marked.
func TestStreamWithoutTheOptionsIsEstimated(t *testing.T) {
	t.Parallel()
	var g *gateway
	g = newGateway(t, refuses(&g, streamAnswer(chatHead, chatText, chatStop, chatDone), unknownMember("stream_options")))
	if got := g.post("/v1/chat/completions", chatStreamBody); got.status != http.StatusOK || !strings.Contains(got.body, "[DONE]") {
		t.Fatalf("got %d: %s", got.status, got.body)
	}
	e := g.spool.next(t)
	dialects()["chat"].checkDelivered(t, e, event.Completed)
	if e.Doubt != "missing" {
		t.Errorf("got doubt %q", e.Doubt)
	}
	asking := strings.Replace(chatStreamBody, "{", `{"stream_options":{"include_usage":true},`, 1)
	if got := g.post("/v1/chat/completions", asking).apiError(t); got.Status != http.StatusBadRequest || got.Param != "stream_options" {
		t.Errorf("a client that asks for the usage: got %+v", got)
	}
}

// A provider that knows the member and insists on storing gets nothing that an operator has not decided about.
func TestProviderThatInsistsOnStoringIsNotCalledWithoutTheMember(t *testing.T) {
	t.Parallel()
	insists := [2]string{"store", `{"error":{"message":"Invalid value: 'false'. Supported values are: 'true'.","type":"invalid_request_error","param":"store","code":"invalid_value"}}`}
	var g *gateway
	g = newGateway(t, refuses(&g, jsonAnswer(200, responsesJSON), insists))
	if got := g.post("/v1/responses", `{"model":"text","input":"hi"}`).apiError(t); got.Status != http.StatusBadGateway || got.Param != "" {
		t.Errorf("got %+v", got)
	}
	if n := len(g.sims[0].received()); n != 1 {
		t.Errorf("%d calls; want one", n)
	}
}

// Whether a provider keeps what one account sends must not depend on the requests of others.
func TestStoreIsLeftOutForEachAccountAlone(t *testing.T) {
	t.Parallel()
	var g *gateway
	g = newGateway(t, refuses(&g, jsonAnswer(200, chatJSON), unknownMember("store")))
	keys := []string{g.key}
	for _, account := range []string{"acc_2", "acc_3"} {
		g.plane.open(account, 1_000_000, 1_000_000, 10)
		keys = append(keys, g.issue("key_"+account, account))
	}
	for i, want := range []int{2, 4, 6} {
		g.key = keys[i]
		if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
			t.Fatalf("account %d: got %d: %s", i, got.status, got.body)
		}
		if n := len(g.sims[0].received()); n != want {
			t.Errorf("account %d: %d calls; want %d", i, n, want)
		}
	}
}

// What an operator has changed about a route may be the reason of the refusal.
func TestChangedRouteIsCalledWithAllMembersAgain(t *testing.T) {
	t.Parallel()
	var g *gateway
	g = newGateway(t, refuses(&g, jsonAnswer(200, chatJSON), unknownMember("store")))
	g.post("/v1/chat/completions", chatBody)
	g.publishCatalog(options{model: func(m *catalogkv.Model) { m.Routes[0].Resets++ }})
	g.post("/v1/chat/completions", chatBody)
	if n := len(g.sims[0].received()); n != 4 {
		t.Errorf("%d calls; want 4", n)
	}
}

// A refusal that has another reason must not keep other clients from their reasoning.
func TestOtherRefusalsDoNotRemoveTheAddedMember(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusBadRequest, `{"error":{"message":"The encrypted content for item rs_1 could not be verified.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}`))
	for range 2 {
		if got := g.post("/v1/responses", `{"model":"text","input":"hi"}`); got.status != http.StatusBadRequest {
			t.Fatalf("got %d: %s", got.status, got.body)
		}
	}
	calls := g.sims[0].received()
	if len(calls) != 2 || !strings.Contains(calls[1].body, "reasoning.encrypted_content") {
		t.Errorf("%d calls, the last with %s", len(calls), calls[len(calls)-1].body)
	}
}

// The client has not sent what the operator forces, so it cannot leave it out.
func TestForcedParameterThatTheProviderRefusesIsNotTheClientsError(t *testing.T) {
	t.Parallel()
	force := options{model: func(m *catalogkv.Model) {
		m.Params = map[catalogkv.Format]catalogkv.Params{catalogkv.Chat: {"seed": {Policy: "force", Value: json.RawMessage("7")}}}
	}}
	refusal := jsonAnswer(http.StatusBadRequest, unknownMember("seed")[1])
	g := newGatewayWith(t, force, refusal, jsonAnswer(http.StatusOK, chatJSON))
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK || len(g.sims[0].received()) != 1 || len(g.sims[1].received()) != 1 {
		t.Errorf("with another route: got %d: %s", got.status, got.body)
	}
	alone := newGatewayWith(t, force, refusal)
	if got := alone.post("/v1/chat/completions", chatBody).apiError(t); got.Status != http.StatusBadGateway || got.Param != "" {
		t.Errorf("alone: got %+v", got)
	}
}

// Once the client has a part of the answer the body of the request is gone: nothing may call a provider with it again, whatever
// the stream says afterwards, or the client would get a second answer made of the bytes of another request.
func TestRefusalAfterTheTextIsNoReasonForASecondCall(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		`{"type":"error","code":"unsupported_parameter","message":"Encrypted content is not supported with this model.","param":"include"}`,
		`{"type":"error","code":"unsupported_parameter","message":"Unsupported parameter: store","param":"store"}`,
		`{"type":"error","code":"invalid_encrypted_content","message":"The encrypted content for item rs_1 could not be verified.","param":null}`,
	} {
		read := make(chan struct{})
		answer := func(w http.ResponseWriter, _ *http.Request) {
			sendEvents(w,
				"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r1\",\"status\":\"in_progress\"}}\n\n",
				"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hello\"}\n\n",
			)
			<-read
			sendEvents(w, "event: error\ndata: "+refusal+"\n\n")
		}
		g := newGateway(t, answer, answer)
		got := g.begin(t.Context(), http.MethodPost, "/v1/responses", strings.NewReader(`{"model":"text","input":"hi","stream":true}`))
		head := bufio.NewReader(got.Body)
		for line := ""; !strings.Contains(line, "Hello"); {
			var err error
			if line, err = head.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		close(read)
		rest, err := io.ReadAll(head)
		if err != nil || strings.Contains(string(rest), "Hello") || !strings.Contains(string(rest), `"type":"error"`) {
			t.Errorf("after the text: got %s, %v; want an error and no second answer", rest, err)
		}
		_ = got.Body.Close()
		if calls := len(g.sims[0].received()) + len(g.sims[1].received()); calls != 1 {
			t.Errorf("%d calls; want one", calls)
		}
		if e := g.spool.next(t); e.Status != event.Failed {
			t.Errorf("got event %+v", e)
		}
	}
}
