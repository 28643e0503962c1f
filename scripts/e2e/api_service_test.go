package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/scripts/e2e/rig"
)

// The gateway forwards a request with a key to the provider of the model and returns the
// answer.
func TestRequestIsForwardedToTheProviderOfTheModel(t *testing.T) {
	a := newAPI(t)
	for _, e := range texts {
		model := a.Model(t, rig.Model{Formats: []string{e.format}, Directives: "out=7"})
		answer := a.ok(t, e.path, e.body(model))
		if text := e.text(t, answer); len(strings.Fields(text)) != 7 {
			t.Errorf("%s: got the text %q; want 7 words", e.path, text)
		}
		checkHeaders(t, answer)
		if got := a.upstream(t, model); len(got) != 1 || got[0].path != e.path || got[0].body["model"] != model+"@out=7" {
			t.Errorf("the provider got %v; want one request to %s for its own name of the model", got, e.path)
		}
	}
}

// All three text formats stream.
func TestThreeTextFormatsStream(t *testing.T) {
	a := newAPI(t)
	for _, e := range texts {
		whole := e.text(t, a.ok(t, e.path, e.body(e.model)))
		answer := a.ok(t, e.path, e.with(e.model, "stream", true))
		checkHeaders(t, answer)
		if streamed := e.streamedText(t, answer); streamed == "" || streamed != whole {
			t.Errorf("%s: streamed %q; want %q as in the non-streaming answer", e.path, streamed, whole)
		}
	}
}

// Images are billed per image. Video jobs are billed per second when they complete.
func TestImagesAreBilledPerImageVideosPerSecond(t *testing.T) {
	a := newAPI(t)
	answer := a.ok(t, images.path, images.with(images.model, "n", 3))
	usage := a.AwaitUsage(t, answer.RequestID())
	if usage.Cost != "0.15" { // three at the default price of the demo's catalog
		t.Errorf("three pictures cost %s; want 0.15", usage.Cost)
	}
	// it does not complete, and is not billed
	a.createVideo(t, videos.body(a.Model(t, rig.Model{Type: "video", Directives: "polls=100000"})))
	id := a.createVideo(t, videos.with(videos.model, "seconds", "8"))
	a.awaitVideo(t, id, "completed")
	for _, u := range a.account.AwaitUsage(t, 2) {
		if u.VideoJob != nil && (*u.VideoJob != id || u.Cost != "0.80") {
			t.Errorf("the job %s cost %s; want %s for 0.80, 8 seconds at 0.10", *u.VideoJob, u.Cost, id)
		}
	}
}

// The gateway does not translate between formats: a model answers on an endpoint only if its
// provider supports the format.
func TestFormatsAreNotTranslated(t *testing.T) {
	a := newAPI(t)
	for _, spoken := range texts {
		model := a.Model(t, rig.Model{Formats: []string{spoken.format}})
		for _, asked := range texts {
			if asked.format == spoken.format {
				a.ok(t, asked.path, asked.body(model))
				continue
			}
			a.refusedPost(t, asked.path, asked.body(model), refusal{404, "model_not_found", "model"})
		}
		if got := a.upstream(t, model); len(got) != 1 || got[0].path != spoken.path {
			t.Errorf("the provider of %s got %v", spoken.format, got)
		}
	}
}

// A model of another type is refused exactly as one that does not exist.
func TestModelTypeMustMatchTheEndpoint(t *testing.T) {
	a := newAPI(t)
	models := map[string]string{"text": "demo-all", "image": "demo-image", "video": "demo-video"}
	for _, e := range generations {
		missing := a.refusedPost(t, e.path, e.body("no-such-model"), refusal{404, "model_not_found", "model"})
		for kind, model := range models {
			if kind == e.kind() {
				continue
			}
			message := a.refusedPost(t, e.path, e.body(model), refusal{404, "model_not_found", "model"})
			if strings.ReplaceAll(message, model, "no-such-model") != missing {
				t.Errorf("%s for a %s model: %q; want it as for one that does not exist: %q", e.path, kind, message, missing)
			}
		}
	}
}

// Only supported parameters reach the provider, and identifiers of the client are replaced.
func TestOnlySupportedParametersReachTheProvider(t *testing.T) {
	a := newAPI(t)
	other := a.Account(t, rig.AccountSpec{})
	for _, e := range generations {
		a.refusedPost(t, e.path, e.with(e.model, "warp_factor", 9), refusal{400, "unsupported_parameter", "warp_factor"})
	}
	tests := []struct {
		endpoint
		name  string
		value any
		// read returns the identifier in the value of the parameter.
		read func(any) any
	}{
		{chat, "user", "ann@example.org", func(v any) any { return v }},
		{chat, "safety_identifier", "ann@example.org", func(v any) any { return v }},
		{responses, "user", "ann@example.org", func(v any) any { return v }},
		{messages, "metadata", map[string]any{"user_id": "ann@example.org"}, func(v any) any {
			m, _ := v.(map[string]any)
			return m["user_id"]
		}},
		{images, "user", "ann@example.org", func(v any) any { return v }},
	}
	for _, tt := range tests {
		t.Run(tt.format+" "+tt.name, func(t *testing.T) {
			model := a.Model(t, rig.Model{Type: tt.kind(), Formats: []string{tt.format}})
			body := tt.with(model, tt.name, tt.value)
			a.ok(t, tt.path, body)
			a.ok(t, tt.path, body)
			if answer := a.Do(t, rig.Request{Path: tt.path, Key: other.Key, Body: body}); answer.Status != http.StatusOK {
				t.Fatalf("the other account: got %s", answer)
			}
			var seen []any
			for _, request := range a.upstream(t, model) {
				seen = append(seen, tt.read(request.body[tt.name]))
				if text, err := json.Marshal(request.body); err != nil || strings.Contains(string(text), "example.org") {
					t.Errorf("the provider got %s, %v; want no identifier of the client", text, err)
				}
			}
			if len(seen) != 3 || seen[0] != seen[1] || seen[0] == seen[2] {
				t.Errorf("the provider saw %v; want the same for one account and another for the other", seen)
			}
		})
	}
}

// A tool that the provider runs is left out of a request that merely offers it, and refused if the request demands its
// call. Tools that the client runs pass.
func TestToolsOfTheProviderAreLeftOutOrRefused(t *testing.T) {
	a := newAPI(t)
	list := func(tools ...any) []any { return tools }
	function := map[string]any{"type": "function", "name": "f", "parameters": map[string]any{"type": "object"}}
	search := map[string]any{"type": "web_search"}
	custom := map[string]any{"name": "f", "input_schema": map[string]any{"type": "object"}}
	dated := map[string]any{"type": "web_search_20250305", "name": "web_search"}
	tests := []struct {
		endpoint
		offered, passed []any
		choice          any
	}{
		{responses, list(search, function), list(function), map[string]any{"type": "web_search"}},
		{messages, list(dated, custom), list(custom), map[string]any{"type": "tool", "name": "web_search"}},
	}
	for _, tt := range tests {
		t.Run(tt.format, func(t *testing.T) {
			model := a.Model(t, rig.Model{Type: tt.kind(), Formats: []string{tt.format}})
			body := tt.with(model, "tools", tt.offered)
			a.ok(t, tt.path, body)
			for _, request := range a.upstream(t, model) {
				if diff := cmp.Diff(any(tt.passed), request.body["tools"]); diff != "" {
					t.Errorf("the provider got other tools (-want +got):\n%s", diff)
				}
			}
			body["tool_choice"] = tt.choice
			message := a.refusedPost(t, tt.path, body, refusal{400, "unsupported_parameter", "tools[0].type"})
			if !strings.Contains(message, "web_search") {
				t.Errorf("got the message %q; want the tool in it", message)
			}
		})
	}
	answer := a.Do(t, rig.Request{Path: messages.path, Key: a.account.Key, Body: messages.with(messages.model, "thread", map[string]any{"type": "create"})})
	if want := `"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}`; answer.Status != http.StatusBadRequest || !strings.Contains(string(answer.Body), want) {
		t.Errorf("a thread: got %s; want 400 with %s", answer, want)
	}
}

// Headers of the client do not reach the provider. checkHeaders checks that headers of the
// provider do not reach the client.
func TestHeadersAreNotPassedOn(t *testing.T) {
	a := newAPI(t)
	sent := http.Header{
		"Anthropic-Beta": {"context-1m-2025-08-07"}, "Anthropic-Version": {"2023-01-01"}, "Openai-Beta": {"assistants=v2"}, "Openai-Organization": {"org-1"},
		"User-Agent": {"my-agent/1"}, "X-Stainless-Lang": {"go"}, "X-Custom": {"1"}, "Cookie": {"a=b"}, "X-Forwarded-For": {"192.0.2.1"},
		"Idempotency-Key": {"k"}, "X-Request-Id": {"mine"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "X-Api-Key": {"second"},
	}
	for _, e := range generations {
		model := a.Model(t, rig.Model{Type: e.kind(), Formats: []string{e.format}})
		answer := a.Do(t, rig.Request{Path: e.path, Key: a.account.Key, Header: sent, Body: e.body(model)})
		if answer.Status >= 300 {
			t.Fatalf("%s: got %s", e.path, answer)
		}
		if id := answer.RequestID(); id == "mine" {
			t.Errorf("%s: the id of the client was used", e.path)
		}
		checkHeaders(t, answer)
		own := []string{"accept", "accept-encoding", "authorization", "content-length", "content-type", "user-agent"}
		if e.format == "messages" {
			own = append(own, "anthropic-version")
		}
		if e.format == "videos" {
			own = append(own, "idempotency-key") // of the gateway, so that a retry does not create a second job
		}
		for _, request := range a.upstream(t, model) {
			for name, values := range request.headers {
				if !slices.Contains(own, name) {
					t.Errorf("%s: the provider got the header %s: %v", e.path, name, values)
				}
				if client, ok := sent[http.CanonicalHeaderKey(name)]; ok && cmp.Equal(client, values) {
					t.Errorf("%s: the provider got the client's header %s: %v", e.path, name, values)
				}
			}
			if strings.Contains(fmt.Sprint(request.headers), a.account.Key) {
				t.Errorf("%s: the provider got the client's key", e.path)
			}
		}
	}
}

// No conversation is stored at the provider.
func TestNoStateIsKeptAtTheProvider(t *testing.T) {
	a := newAPI(t)
	for name, value := range map[string]any{"previous_response_id": "resp_1", "conversation": "conv_1", "background": true} {
		a.refusedPost(t, responses.path, responses.with("demo-all", name, value), refusal{400, "unsupported_parameter", name})
	}
	for _, e := range []endpoint{chat, responses} {
		model := a.Model(t, rig.Model{Formats: []string{e.format}})
		a.ok(t, e.path, e.with(model, "store", true))
		for _, request := range a.upstream(t, model) {
			if request.body["store"] != false {
				t.Errorf("%s: the provider got store = %v; want false", e.path, request.body["store"])
			}
		}
	}
}

// While a request runs, its expected cost is reserved on the account and in the limit of the
// key. Video jobs reserve nothing.
func TestRunningRequestsAreReservedFor(t *testing.T) {
	a := newAPI(t)
	h := rig.NewBlockingProvider(t, a.Rig)
	_, key := a.account.NewKey(t, "5")
	done := make(chan *rig.Answer, 1)
	go func() {
		answer, err := a.Try(t.Context(), rig.Request{Path: chat.path, Key: key, Body: chatBody(h.Model, "Hold on", false)})
		if err != nil {
			t.Error(err)
		}
		done <- answer
	}()
	h.Await(t, 1)
	running := a.balance(t, 1, key) // through the other proxy
	h.Release()
	answer := <-done
	reservation := a.AwaitUsage(t, answer.RequestID()).Reservation
	if running.Reserved != reservation || running.Key.Reserved != reservation || reservation == "0.00" {
		t.Errorf("while it runs %s of the account and %s of the key are reserved; want %s", running.Reserved, running.Key.Reserved, reservation)
	}
	a.account.AwaitIdle(t)
	if after := a.balance(t, 1, key); after.Reserved != "0.00" || after.Key.Reserved != "0.00" || after.Key.Spent == "0.00" {
		t.Errorf("afterwards: got %+v; want something spent and nothing reserved", after)
	}
	model := a.Model(t, rig.Model{Type: "video", Directives: "polls=1000"})
	a.createVideo(t, videos.body(model))
	if b := a.balance(t, 0, key); b.Reserved != "0.00" {
		t.Errorf("a video job reserves %s; want nothing", b.Reserved)
	}
}

// Every response has the header x-request-id. checkRefusal compares it with the request_id of
// errors.
func TestEveryResponseHasARequestID(t *testing.T) {
	a := newAPI(t)
	seen := map[string]bool{}
	for _, q := range []rig.Request{
		{Path: "/v1/models"},
		{Path: "/v1/models", Method: http.MethodHead},
		{Path: "/v1/balance", Key: a.account.Key},
		{Path: "/v1/balance"},
		{Path: "/nowhere"},
		{Path: "/nowhere", Method: http.MethodHead},
		{Path: "/v1/messages", Method: http.MethodDelete},
		{Path: "/", Method: http.MethodOptions},
		{Path: chat.path, Body: "{"},
		{Path: chat.path, Key: a.account.Key, Body: chat.body("demo-all")},
		{Path: chat.path, Key: a.account.Key, Body: chat.with("demo-all", "stream", true)},
		{Path: "/v1/videos/video_none", Key: a.account.Key},
	} {
		answer := a.Do(t, q)
		checkHeaders(t, answer)
		if seen[answer.RequestID()] {
			t.Errorf("%s %s has an id that another has", q.Method, q.Path)
		}
		seen[answer.RequestID()] = true
	}
}
