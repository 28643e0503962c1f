package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/platform/testkit/wiresample"
)

// listed are the quantities of a usage record that the expected usage of samples lists.
var listed = []string{
	"input", "cached_input", "cache_write_5m", "cache_write_1h", "cache_write_30m", "cache_write_12h", "cache_write_other",
	"output", "reasoning", "audio_in", "audio_out", "image_in", "image_out", "images", "seconds", "server_tool_requests",
}

// quantities returns the listed quantities of a usage that are not zero.
func quantities(usage map[string]any) map[string]any {
	q := map[string]any{}
	for name, n := range usage {
		if slices.Contains(listed, name) && n != 0.0 {
			q[name] = n
		}
	}
	return q
}

// everyPrice returns a price sheet with a price for every quantity.
func everyPrice() map[string]any {
	list := map[string]any{"server_tool": "0.01", "images": []any{map[string]any{"price": "0.05"}}}
	for _, line := range listed[:13] {
		list[line] = "1.00"
	}
	list["secondary"] = []any{
		map[string]any{"kind": "image_tool", "input": "2.00", "output": "3.00"},
		map[string]any{"kind": "svg", "input": "2.00", "output": "3.00"},
		map[string]any{"kind": "advisor", "input": "2.00", "output": "3.00"},
	}
	return list
}

// errorOffset returns where the error event of a stream begins, 0 for a stream without one.
func errorOffset(stream []byte) int {
	for _, mark := range []string{"event: error\n", `data: {"error":{`} {
		if at := bytes.Index(stream, []byte(mark)); at > 0 {
			return at
		}
	}
	return 0
}

// newSampleProvider starts a provider that answers with the sample that the model is
// named after. It waits for a value on proceed before it sends the error of a stream.
func newSampleProvider(t *testing.T, proceed <-chan struct{}) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var body struct{ Model string }
		if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		text, err := fs.ReadFile(wiresample.Files(), body.Model)
		if err != nil {
			t.Error(err)
		}
		kind, status := "application/json", http.StatusOK
		if path.Ext(body.Model) == ".sse" {
			kind = "text/event-stream"
		} else if strings.HasPrefix(path.Base(body.Model), "error") {
			status = http.StatusBadRequest
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		if at := errorOffset(text); kind == "text/event-stream" && at > 0 {
			// The error is sent after the client has read the events before it.
			_, _ = w.Write(text[:at])
			_ = http.NewResponseController(w).Flush()
			text = text[at:]
			select {
			case <-proceed:
			case <-q.Context().Done():
			}
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	return server
}

// The gateway forwards the answers of all formats unchanged, except for the name of the
// model and the members that identify a client, and records the reported usage.
func TestSamplesAreForwardedAndBilled(t *testing.T) {
	expected := wiresample.ExpectedUsage(t)
	a := newAPI(t)
	proceed := make(chan struct{})
	provider := a.Provider(t, rig.Provider{BaseURL: newSampleProvider(t, proceed).URL})
	formats := map[string]endpoint{"chat": chat, "responses": responses, "messages": messages, "images": images}
	var names []string
	var models []rig.Model
	for name := range expected {
		e, ok := formats[path.Dir(name)]
		if !ok || name == "images/stream.sse" { // the gateway does not stream images
			continue
		}
		names = append(names, name)
		models = append(models, rig.Model{
			Type: e.kind(), Price: everyPrice(), Routes: []rig.Route{{Provider: provider, UpstreamModel: name, Formats: []string{e.format}}},
		})
	}
	for i, model := range a.Models(t, models...) {
		e, want := formats[path.Dir(names[i])], expected[names[i]]
		t.Run(names[i], func(t *testing.T) {
			t.Parallel()
			var reported map[string]any
			if err := json.Unmarshal(want.Usage, &reported); err != nil {
				t.Fatal(err)
			}
			body := e.body(model)
			if path.Ext(names[i]) == ".sse" {
				body["stream"] = true
			}
			if e.format == "chat" && body["stream"] == true {
				body["stream_options"] = map[string]any{"include_usage": true}
			}
			answer := a.readSlowly(t, rig.Request{Path: e.path, Key: a.account.Key, Body: body}, func() {
				if strings.Contains(names[i], "stream-error") {
					proceed <- struct{}{}
				}
			})
			checkHeaders(t, answer)
			if want.Billing == "none" {
				if answer.Status < 400 {
					t.Errorf("got %s; want an error", answer)
				}
				return
			}
			if answer.Status != http.StatusOK {
				t.Fatalf("got %s; want an answer", answer)
			}
			usage := a.AwaitUsage(t, answer.RequestID())
			if want.Billing == "estimate" {
				// A stream that failed before its first output is not billed.
				if output := bytes.Contains(answer.Body, []byte("delta")); usage.Estimated != output || !output && usage.Cost != "0.00" {
					t.Errorf("the stream has output: %t; its usage is %v, estimated %t, for %s", output, usage.Usage, usage.Estimated, usage.Cost)
				}
				for name, n := range quantities(reported) {
					if usage.Usage[name] != n {
						t.Errorf("%s: got %v; want %v as reported before the failure", name, usage.Usage[name], n)
					}
				}
				return
			}
			if diff := cmp.Diff(quantities(reported), quantities(usage.Usage)); diff != "" || usage.Estimated {
				t.Errorf("usage, estimated %t (-want +got):\n%s", usage.Estimated, diff)
			}
			checkSecondModel(t, reported, usage)
			for _, name := range withheld {
				if bytes.Contains(answer.Body, []byte(`"`+name+`"`)) {
					t.Errorf("the answer to the client has the member %s", name)
				}
			}
			if diff := cmp.Diff(values(t, wiresample.Read(t, names[i]), model), values(t, answer.Body, model)); diff != "" {
				t.Errorf("the answer (-sample +got):\n%s", diff)
			}
		})
	}
}

// checkSecondModel checks that the receipt has lines of their own for the secondary model
// that a sample reports, and no such lines for a sample without one.
func checkSecondModel(t *testing.T, want map[string]any, usage *adminclient.UsageDetail) {
	t.Helper()
	kind, second := "", map[string]any{}
	if tool, ok := want["tool_image"].(map[string]any); ok {
		kind, second = "image_tool", tool
	}
	if list, ok := want["secondary"].([]any); ok {
		kind, second = "svg", list[0].(map[string]any)
	}
	lines := map[string]any{}
	for _, line := range usage.Receipt.Lines {
		if of, name, second := strings.Cut(line.Line, "."); second {
			if of != kind {
				t.Errorf("the receipt has the line %s", line.Line)
			}
			lines[name] = float64(line.Quantity)
		}
	}
	wanted := map[string]any{}
	for _, name := range []string{"input", "output"} { // they include the other quantities, at the same price
		if second[name] != nil {
			wanted[name] = second[name]
		}
	}
	if diff := cmp.Diff(wanted, lines); diff != "" {
		t.Errorf("lines of the secondary model (-want +got):\n%s", diff)
	}
}

// readSlowly calls the API, and calls begun after the first byte of the answer.
func (a *api) readSlowly(t *testing.T, q rig.Request, begun func()) *rig.Answer {
	t.Helper()
	response, err := a.Open(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	first := make([]byte, 1)
	if _, err := io.ReadFull(response.Body, first); err != nil {
		t.Fatal(err)
	}
	begun()
	rest, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return &rig.Answer{Status: response.StatusCode, Header: response.Header, Body: slices.Concat(first, rest)}
}

// replaced lists the members that identify a client or its conversation.
var replaced = []string{"user", "safety_identifier", "prompt_cache_key", "metadata", "store", "previous_response_id", "service_tier"}

// withheld lists the members that say how much the provider charges the gateway.
var withheld = []string{"cost", "cost_details", "is_byok", "cost_in_usd_ticks"}

// values returns the JSON value of a whole answer, or those of the events of a stream,
// without the members that the gateway replaces.
func values(t *testing.T, body []byte, model string) []any {
	t.Helper()
	texts := []string{string(body)}
	if !json.Valid(body) {
		texts = nil
		for _, ev := range (&rig.Answer{Body: body}).Events() {
			// The gateway turns a keepalive event into a comment, because old clients fail on it.
			if ev.Data != "[DONE]" && ev.Name != "keepalive" {
				texts = append(texts, ev.Data)
			}
		}
	}
	var all []any
	for _, text := range texts {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all = append(all, neutral(value, model))
	}
	return all
}

// neutral returns the value without the members that the gateway replaces, and with one
// name for the model.
func neutral(value any, model string) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = neutral(v[i], model)
		}
	case map[string]any:
		for name := range v {
			switch {
			case slices.Contains(replaced, name), slices.Contains(withheld, name):
				delete(v, name)
			case name == "model":
				v[name] = model
			default:
				v[name] = neutral(v[name], model)
			}
		}
	}
	return value
}
