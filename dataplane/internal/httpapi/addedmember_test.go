package httpapi_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"modelgateway/shared/event"
)

const refusedInclude = `{"error":{"message":"Encrypted content is not supported with this model.","type":"invalid_request_error","param":"include","code":null}}`

// The client has not asked for encrypted reasoning, so it never hears of a provider that refuses it.
func TestAddedMemberThatTheProviderRefusesIsLeftOutInASecondCall(t *testing.T) {
	t.Parallel()
	var g *gateway
	g = newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		answer, calls := jsonAnswer(http.StatusOK, responsesJSON), g.sims[0].received()
		if strings.Contains(calls[len(calls)-1].body, "encrypted_content") {
			answer = jsonAnswer(http.StatusBadRequest, refusedInclude)
		}
		answer(w, r)
	})
	for i, want := range []int{2, 3} { // the second request knows
		if got := g.post("/v1/responses", `{"model":"text","input":"hi"}`); got.status != http.StatusOK {
			t.Fatalf("request %d: got %d: %s", i, got.status, got.body)
		}
		if calls := g.sims[0].received(); len(calls) != want || strings.Contains(calls[want-1].body, "include") {
			t.Errorf("request %d: %d calls, the last with %s", i, len(calls), calls[len(calls)-1].body)
		}
	}
	if got := g.post("/v1/responses", `{"model":"text","input":"hi","store":false,"include":["reasoning.encrypted_content"]}`); got.status != http.StatusBadRequest {
		t.Errorf("the client's own include: got %d: %s", got.status, got.body)
	}
	if calls := len(g.sims[0].received()); calls != 4 {
		t.Errorf("%d calls; want 4", calls)
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

const refusedStore = `{"detail":[{"type":"extra_forbidden","loc":["body","store"],"msg":"Extra inputs are not permitted","input":false}]}`

// The client has not sent what the gateway forces, so it cannot leave it out.
func TestForcedParameterThatTheProviderRefusesIsNotTheClientsError(t *testing.T) {
	t.Parallel()
	refuses := jsonAnswer(http.StatusUnprocessableEntity, refusedStore)
	g := newGateway(t, refuses, jsonAnswer(http.StatusOK, chatJSON))
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK || len(g.sims[1].received()) != 1 {
		t.Errorf("with another route: got %d: %s", got.status, got.body)
	}
	alone := newGateway(t, refuses)
	if got := alone.post("/v1/chat/completions", chatBody).apiError(t); got.Status != http.StatusBadGateway || got.Param != "" {
		t.Errorf("alone: got %+v", got)
	}
	own := newGateway(t, refuses)
	if got := own.post("/v1/chat/completions", strings.Replace(chatBody, "{", `{"store":false,`, 1)).apiError(t); got.Status != http.StatusBadRequest || got.Param != "store" {
		t.Errorf("the client's own: got %+v", got)
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
