package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/scripts/e2e/rig"
)

// An endpoint is a generation endpoint.
type endpoint struct {
	format, path string
	// model is a model of the demo catalog that answers on it.
	model string
	// body returns a minimal request body.
	body func(model string) map[string]any
}

var (
	chat = endpoint{"chat", "/v1/chat/completions", "demo-all", func(model string) map[string]any {
		return map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": "Hello there"}}}
	}}
	responses = endpoint{"responses", "/v1/responses", "demo-all", func(model string) map[string]any {
		return map[string]any{"model": model, "input": "Hello there"}
	}}
	messages = endpoint{"messages", "/v1/messages", "demo-all", func(model string) map[string]any {
		return map[string]any{"model": model, "max_tokens": 50, "messages": []any{map[string]any{"role": "user", "content": "Hello there"}}}
	}}
	images = endpoint{"images", "/v1/images/generations", "demo-image", func(model string) map[string]any {
		return map[string]any{"model": model, "prompt": "A lighthouse"}
	}}
	videos = endpoint{"videos", "/v1/videos", "demo-video", func(model string) map[string]any {
		return map[string]any{"model": model, "prompt": "Waves", "seconds": "4"}
	}}
	texts       = []endpoint{chat, responses, messages}
	generations = []endpoint{chat, responses, messages, images, videos}
)

// kind returns the type of the models of the endpoint.
func (e endpoint) kind() string {
	switch e.format {
	case "images":
		return "image"
	case "videos":
		return "video"
	default:
		return "text"
	}
}

// with returns the minimal body with one more member.
func (e endpoint) with(model, name string, value any) map[string]any {
	body := e.body(model)
	body[name] = value
	return body
}

// An api is the gateway as a client with an account of its own sees it.
type api struct {
	*rig.Rig
	account *rig.Account
}

// newAPI returns the shared stack with a new account. The test runs in parallel.
func newAPI(t *testing.T) *api {
	t.Helper()
	t.Parallel()
	r := rig.Get(t)
	return &api{r, r.Account(t, rig.AccountSpec{})}
}

// post sends a body with the key of the account.
func (a *api) post(t *testing.T, path string, body any) *rig.Answer {
	t.Helper()
	return a.Do(t, rig.Request{Path: path, Key: a.account.Key, Body: body})
}

// get reads a path with the key of the account.
func (a *api) get(t *testing.T, path string) *rig.Answer {
	t.Helper()
	return a.Do(t, rig.Request{Path: path, Key: a.account.Key})
}

// ok is post for requests that must succeed.
func (a *api) ok(t *testing.T, path string, body any) *rig.Answer {
	t.Helper()
	answer := a.post(t, path, body)
	if answer.Status >= http.StatusMultipleChoices {
		t.Fatalf("%s: got %s; want an answer", path, answer)
	}
	return answer
}

// A refusal is the expected error of a request.
type refusal struct {
	status int
	// code and param are empty for an error without them.
	code, param string
}

// commonTypes and messagesTypes are the values of error.type by status, in the two envelopes.
var (
	commonTypes = map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "insufficient_quota", 403: "permission_error", 404: "invalid_request_error",
		413: "invalid_request_error", 422: "invalid_request_error", 429: "rate_limit_error", 500: "server_error", 502: "server_error", 503: "server_error",
	}
	messagesTypes = map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 502: "api_error", 503: "overloaded_error",
	}
	// final lists the statuses that no retry cures.
	final = []int{400, 401, 402, 403, 404, 409, 412, 413}
)

// refused sends a request, checks its error in every detail and returns the message.
func (a *api) refused(t *testing.T, q rig.Request, want refusal) string {
	t.Helper()
	return checkRefusal(t, q.Path, a.Do(t, q), want)
}

// refusedPost is refused for a body with the key of the account.
func (a *api) refusedPost(t *testing.T, path string, body any, want refusal) string {
	t.Helper()
	return a.refused(t, rig.Request{Path: path, Key: a.account.Key, Body: body}, want)
}

// checkRefusal checks status, envelope and headers of an error. The envelope must have no
// other members, and none that is null.
func checkRefusal(t *testing.T, path string, answer *rig.Answer, want refusal) (message string) {
	t.Helper()
	detail := map[string]any{}
	envelope := map[string]any{"error": detail}
	if want.code != "" {
		detail["code"] = want.code
	}
	if want.param != "" {
		detail["param"] = want.param
	}
	types := commonTypes
	if strings.HasPrefix(path, "/v1/messages") {
		types = messagesTypes
		envelope["type"], envelope["request_id"] = "error", answer.RequestID()
	} else {
		detail["request_id"] = answer.RequestID()
	}
	detail["type"] = types[want.status]
	if _, known := types[want.status]; !known {
		detail["type"] = "invalid_request_error" // any other 4xx
	}
	var got map[string]any
	if err := json.Unmarshal(answer.Body, &got); err != nil {
		t.Errorf("%s: got %s; want an error %d %s", path, answer, want.status, want.code)
		return ""
	}
	if inner, ok := got["error"].(map[string]any); ok {
		message, _ = inner["message"].(string)
		delete(inner, "message")
	}
	if answer.Status != want.status || message == "" {
		t.Errorf("%s: got the status %d with the message %q; want %d and a message", path, answer.Status, message, want.status)
	}
	if diff := cmp.Diff(envelope, got); diff != "" {
		t.Errorf("%s: the error (-want +got):\n%s", path, diff)
	}
	checkHeaders(t, answer)
	if got, want := answer.Header.Get("X-Should-Retry") == "false", slices.Contains(final, want.status); got != want {
		t.Errorf("%s, %d: has x-should-retry false: %t; want %t", path, answer.Status, got, want)
	}
	if answer.Status == http.StatusTooManyRequests && answer.Header.Get("Retry-After") == "" {
		t.Errorf("%s: 429 without Retry-After", path)
	}
	return message
}

// ownHeaders lists all headers that a response may have.
var ownHeaders = []string{
	"Accept-Ranges", "Cache-Control", "Connection", "Content-Length", "Content-Range", "Content-Type", "Date", "Etag", "Last-Modified",
	"Request-Id", "Retry-After", "X-Accel-Buffering", "X-Limit-Id", "X-Limit-Resets-At", "X-Limit-Scope", "X-Request-Id", "X-Should-Retry",
}

// checkHeaders checks that the response has its id and no header of a provider.
func checkHeaders(t *testing.T, answer *rig.Answer) {
	t.Helper()
	id := answer.RequestID()
	if !strings.HasPrefix(id, "req_") || answer.Header.Get("Request-Id") != id {
		t.Errorf("got x-request-id %q and request-id %q; want the same, beginning with req_", id, answer.Header.Get("Request-Id"))
	}
	for name := range answer.Header {
		if !slices.Contains(ownHeaders, name) {
			t.Errorf("the answer has the header %s: %s", name, answer.Header.Get(name))
		}
	}
}

// text returns the text of an answer that is no stream.
func (e endpoint) text(t *testing.T, answer *rig.Answer) string {
	t.Helper()
	type part struct{ Text string }
	var body struct {
		Choices []struct{ Message struct{ Content string } }
		Output  []struct{ Content []part }
		Content []part
	}
	answer.Decode(t, &body)
	var text strings.Builder
	for _, c := range body.Choices {
		text.WriteString(c.Message.Content)
	}
	for _, o := range body.Output {
		for _, p := range o.Content {
			text.WriteString(p.Text)
		}
	}
	for _, p := range body.Content {
		text.WriteString(p.Text)
	}
	return text.String()
}

// streamedText returns the text of a stream and checks that it ends as its format requires.
func (e endpoint) streamedText(t *testing.T, answer *rig.Answer) string {
	t.Helper()
	if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("%s: got %s %s; want a stream", e.path, kind, answer)
	}
	events := answer.Events()
	var text strings.Builder
	last := ""
	for _, ev := range events {
		if last = ev.Name; ev.Data == "[DONE]" {
			last = ev.Data
			continue
		}
		var data struct {
			Choices []struct{ Delta struct{ Content string } }
			Delta   json.RawMessage
		}
		if err := json.Unmarshal([]byte(ev.Data), &data); err != nil {
			t.Fatalf("%s: event %s: %v", e.path, ev.Data, err)
		}
		for _, c := range data.Choices {
			text.WriteString(c.Delta.Content)
		}
		var delta struct{ Text string }
		if ev.Name == "response.output_text.delta" {
			if err := json.Unmarshal(data.Delta, &delta.Text); err != nil {
				t.Fatal(err)
			}
		} else if ev.Name == "content_block_delta" {
			if err := json.Unmarshal(data.Delta, &delta); err != nil {
				t.Fatal(err)
			}
		}
		text.WriteString(delta.Text)
	}
	if want := map[string]string{"chat": "[DONE]", "responses": "response.completed", "messages": "message_stop"}[e.format]; last != want {
		t.Fatalf("%s: the stream ends with %q; want %s", e.path, last, want)
	}
	return text.String()
}

// upstream returns the requests with a body that the simulator received for a model.
func (a *api) upstream(t *testing.T, model string) []upstreamRequest {
	t.Helper()
	var all []upstreamRequest
	for _, entry := range a.Sim.Journal(t, model) {
		if entry.Method != http.MethodPost {
			continue
		}
		request := upstreamRequest{path: entry.Path, headers: entry.Headers}
		if strings.HasPrefix(entry.Headers["content-type"][0], "application/json") {
			if err := json.Unmarshal([]byte(entry.Body), &request.body); err != nil {
				t.Fatalf("the provider got %s: %v", entry.Body, err)
			}
		}
		all = append(all, request)
	}
	return all
}

type upstreamRequest struct {
	path    string
	headers map[string][]string
	body    map[string]any
}
