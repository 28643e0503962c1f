package e2e

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/scripts/e2e/rig"
)

// Every example of a request in the API document is served, and the response has
// the members of the example of the same name.
func TestRequestExamplesOfTheDocumentAreServed(t *testing.T) {
	a := newAPI(t)
	checked, err := newConformance()
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for i := range checked.document.Operations {
		op := &checked.document.Operations[i]
		for name, example := range object(op.Node, "requestBody", "content", "application/json", "examples") {
			answer := a.ok(t, op.Path, example.(map[string]any)["value"])
			_, response := checked.document.Response(op, answer.Status)
			media, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
			want := object(response, "content", media, "examples", name)["value"]
			if diff := cmp.Diff(shapeOf(t, want), shapeOf(t, decoded(t, media, answer.Body))); diff != "" {
				t.Errorf("%s, example %s (-document +answer):\n%s", op.ID(), name, diff)
			}
			played++
		}
	}
	if played < 8 {
		t.Errorf("only %d examples were played", played)
	}
}

// The command lines of the page work as they stand, with an address and a key, if they need no id.
func TestCurlLinesOfThePageWork(t *testing.T) {
	a := newAPI(t)
	page := html.UnescapeString(a.Ops(t, a.DataPlanes()[0], "/docs"))
	played := 0
	for _, part := range strings.Split(page, `<pre class="curl">`)[1:] {
		line, _, _ := strings.Cut(part, "</pre>")
		if strings.Contains(line, "/v1/videos/") {
			continue
		}
		command := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(line, "https://HOST", a.Proxies[0]))
		command.Env = append(os.Environ(), "MGW_API_KEY="+a.account.Key)
		if answer, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", line, err, answer)
		}
		played++
	}
	if played < 7 {
		t.Errorf("only %d lines were played", played)
	}
}

// The examples of streams that fail have the events of streams that do.
func TestFailedStreamExamplesOfTheDocumentAreReal(t *testing.T) {
	a := newAPI(t)
	checked, err := newConformance()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range texts {
		model := a.Model(t, rig.Model{Formats: []string{e.format}, Directives: "error=6"})
		answer := a.ok(t, e.path, e.with(model, "stream", true))
		_, response := checked.document.Response(checked.document.Find(http.MethodPost, e.path), http.StatusOK)
		want := object(response, "content", "text/event-stream", "examples", "stream_failed")["value"]
		if diff := cmp.Diff(shapeOf(t, want), shapeOf(t, string(answer.Body))); diff != "" {
			t.Errorf("%s (-document +answer):\n%s", e.path, diff)
		}
	}
}

// decoded is a JSON body as a value and the body of a stream as a string.
func decoded(t *testing.T, media string, body []byte) any {
	t.Helper()
	if media != "application/json" {
		return string(body)
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// shapeOf reduces a value to its members and their types. A stream becomes the
// shapes of its events, those alike in a row once.
func shapeOf(t *testing.T, value any) any {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		shape := map[string]any{}
		for name := range v {
			shape[name] = shapeOf(t, v[name])
		}
		return shape
	case []any:
		var shapes []any
		for i := range v {
			shapes = appendNew(shapes, shapeOf(t, v[i]))
		}
		return shapes
	case string:
		if !strings.Contains(v, "data: ") {
			return "string"
		}
		var shapes []any
		for _, event := range (&rig.Answer{Body: []byte(v)}).Events() {
			shape := any("[DONE]")
			if event.Data != "[DONE]" {
				shape = shapeOf(t, decoded(t, "application/json", []byte(event.Data)))
			}
			if next := []any{event.Name, shape}; len(shapes) == 0 || !cmp.Equal(shapes[len(shapes)-1], next) {
				shapes = append(shapes, next)
			}
		}
		return shapes
	case nil:
		return "null"
	case bool:
		return "boolean"
	default:
		return "number"
	}
}

func appendNew(all []any, value any) []any {
	if slices.ContainsFunc(all, func(each any) bool { return cmp.Equal(each, value) }) {
		return all
	}
	return append(all, value)
}

// Each generation endpoint returns each error that the document lists for it,
// as far as the provider or the state of the account or model causes it.
func TestEveryGenerationEndpointReturnsTheDocumentedErrors(t *testing.T) {
	a := newAPI(t)
	_, spent := a.account.NewKey(t, "0.000000001")
	invalid := map[string]any{"chat": "user", "responses": "user", "messages": "system", "images": "user", "videos": "size"}
	causes := []struct {
		directives string
		want       refusal
	}{
		{"body=context_length", refusal{400, "context_length_exceeded", ""}},
		{"body=unsupported", refusal{400, "unsupported_value", "temperature"}},
		{"body=content_policy", refusal{400, "content_policy_violation", ""}},
		{"body=invalid_image", refusal{400, "invalid_image", ""}},
		{"body=unknown_param", refusal{400, "unsupported_parameter", "seed"}},
		{"status=409,message=The%20conversation%20is%20locked.", refusal{409, "invalid_request", ""}},
		{"status=429", refusal{429, "rate_limit_exceeded", ""}},
		{"status=500", refusal{502, "upstream_unavailable", ""}},
	}
	for _, e := range generations {
		var models []rig.Model
		for _, cause := range causes {
			models = append(models, rig.Model{Type: e.kind(), Formats: []string{e.format}, Directives: cause.directives})
		}
		models = append(models, rig.Model{Type: e.kind(), Routes: []rig.Route{{UpstreamModel: "x", Formats: []string{e.format}, Enabled: rig.False()}}})
		ids := a.Models(t, models...)
		for i, cause := range causes {
			answer := a.post(t, e.path, e.body(ids[i]))
			if p := answer.Problem(t); p.Status != cause.want.status || p.Code != cause.want.code || cause.want.param != "" && p.Param != cause.want.param {
				t.Errorf("%s with %s: got %s; want %d %s", e.path, cause.directives, answer, cause.want.status, cause.want.code)
			}
		}
		a.refusedPost(t, e.path, e.body(ids[len(causes)]), refusal{503, "", ""})
		name := invalid[e.format].(string)
		a.refusedPost(t, e.path, e.with(e.model, name, 5), refusal{400, "invalid_value", name})
		// A video job reserves nothing, so that only the one after the limit is reached is refused.
		answer := a.AwaitStatus(t, rig.Request{Path: e.path, Key: spent, Body: e.body(e.model)}, http.StatusForbidden)
		checkRefusal(t, e.path, answer, refusal{403, "spend_limit_exceeded", ""})
	}
}

// A provider's refusal of a download reaches the client as documented.
func TestVideoContentReturnsTheDocumentedErrors(t *testing.T) {
	a := newAPI(t)
	var status atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/content") {
			_, _ = io.WriteString(w, `{"id":"v1","object":"video","status":"completed","progress":100,"seconds":"4"}`)
			return
		}
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, `{"error":{"message":"The conversation is locked.","type":"invalid_request_error"}}`)
	}))
	t.Cleanup(server.Close)
	provider := a.Provider(t, rig.Provider{BaseURL: server.URL})
	model := a.Model(t, rig.Model{Type: "video", Routes: []rig.Route{{Provider: provider, UpstreamModel: "v", Formats: []string{"videos"}}}})
	id := a.createVideo(t, videos.body(model))
	a.awaitVideo(t, id, "completed")
	path := "/v1/videos/" + id + "/content"
	for upstream, want := range map[int64]refusal{
		400: {400, "invalid_request", ""}, 412: {412, "invalid_request", ""}, 429: {429, "rate_limit_exceeded", ""}, 500: {502, "upstream_unavailable", ""},
		409: {404, "not_found", ""}, 410: {404, "not_found", ""}, 425: {404, "not_found", ""},
	} {
		status.Store(upstream)
		a.refused(t, rig.Request{Path: path, Key: a.account.Key}, want)
	}
	a.refused(t, rig.Request{Path: path + "?variant=x", Key: a.account.Key}, refusal{400, "invalid_value", "variant"})
	demo := a.createVideo(t, videos.body(videos.model))
	a.awaitVideo(t, demo, "completed")
	answer := a.Do(t, rig.Request{Path: "/v1/videos/" + demo + "/content", Key: a.account.Key, Header: http.Header{"Range": {"bytes=99999999-"}}})
	if answer.Status != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("a range past the end: got %s; want 416", answer)
	}
}

// Each data plane serves the document and its page on its ops listener, and not
// on the listener of the API.
func TestDocumentIsServedByTheOpsListener(t *testing.T) {
	a := newAPI(t)
	want, err := os.ReadFile(filepath.Join("..", "..", "dataplane", "api", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range a.DataPlanes() {
		if got := a.Ops(t, part, "/openapi.yaml"); got != string(want) {
			t.Errorf("%s: /openapi.yaml has %d bytes; want the document with %d", part, len(got), len(want))
		}
		if page := a.Ops(t, part, "/docs"); !strings.Contains(page, `id="createChatCompletion"`) {
			t.Errorf("%s: /docs has no operation createChatCompletion", part)
		}
	}
	for _, path := range []string{"/openapi.yaml", "/docs"} {
		a.refused(t, rig.Request{Path: path}, refusal{404, "not_found", ""})
	}
}
