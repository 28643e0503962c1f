package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// samples are recorded answers of providers, where this checkout has some
// beside it, with the usage that each of them reports.
func samples(t *testing.T) (dir string, expected map[string]sample) {
	t.Helper()
	dir = filepath.Join("..", "..", "..", "shared", "wire", "samples")
	text, err := os.ReadFile(filepath.Join(dir, "expected-usage.json"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("there are no recorded answers beside this checkout")
	}
	var file struct{ Samples map[string]sample }
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, file.Samples
}

type sample struct {
	// Billing is final, estimate, pending or none.
	Billing string
	Usage   map[string]any
}

// kept are the quantities of a usage record that samples speak of.
var kept = []string{
	"input", "cached_input", "cache_write_5m", "cache_write_1h", "cache_write_30m", "cache_write_12h", "cache_write_other",
	"output", "reasoning", "audio_in", "audio_out", "image_in", "image_out", "images", "seconds", "server_tool_requests",
}

// quantities are those of a usage that are not zero.
func quantities(usage map[string]any) map[string]any {
	q := map[string]any{}
	for name, n := range usage {
		if slices.Contains(kept, name) && n != 0.0 {
			q[name] = n
		}
	}
	return q
}

// everyPrice is a list in which everything has a price.
func everyPrice() map[string]any {
	list := map[string]any{"server_tool": "0.01", "images": []any{map[string]any{"price": "0.05"}}}
	for _, line := range kept[:13] {
		list[line] = "1.00"
	}
	list["secondary"] = []any{
		map[string]any{"kind": "image_tool", "input": "2.00", "output": "3.00"},
		map[string]any{"kind": "svg", "input": "2.00", "output": "3.00"},
		map[string]any{"kind": "advisor", "input": "2.00", "output": "3.00"},
	}
	return list
}

// failsAt finds the event that is an error, 0 if there is none.
func failsAt(stream []byte) int {
	for _, mark := range []string{"event: error\n", `data: {"error":{`} {
		if at := bytes.Index(stream, []byte(mark)); at > 0 {
			return at
		}
	}
	return 0
}

// newRecorder is a provider that answers with the file that the model is named
// after. A stream that fails waits in front of that for a word on proceed.
func newRecorder(t *testing.T, dir string, proceed <-chan struct{}) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var body struct{ Model string }
		if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, body.Model))
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
		if at := failsAt(text); kind == "text/event-stream" && at > 0 {
			// The failure comes when the client has read what is before it.
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

// Recorded answers of all formats pass through as they are, but for the name of
// the model and what stands for a client; and their usage is read as it should.
func TestRecordedAnswersPassThrough(t *testing.T) {
	dir, expected := samples(t)
	a := newAPI(t)
	proceed := make(chan struct{})
	provider := a.Provider(t, rig.Provider{BaseURL: newRecorder(t, dir, proceed).URL})
	formats := map[string]endpoint{"chat": chat, "responses": responses, "messages": messages, "images": images}
	var names []string
	var models []rig.Model
	for name := range expected {
		e, ok := formats[path.Dir(name)]
		if !ok || name == "images/stream.sse" { // streamed pictures are not offered
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
				// Of a stream that failed before it said anything, nothing is billed.
				if said := bytes.Contains(answer.Body, []byte("delta")); usage.Estimated != said || !said && usage.Cost != "0.00" {
					t.Errorf("the stream said something: %t; its usage is %v, estimated %t, for %s", said, usage.Usage, usage.Estimated, usage.Cost)
				}
				for name, n := range quantities(want.Usage) {
					if usage.Usage[name] != n {
						t.Errorf("%s: got %v; want %v as reported before the failure", name, usage.Usage[name], n)
					}
				}
				return
			}
			if diff := cmp.Diff(quantities(want.Usage), quantities(usage.Usage)); diff != "" || usage.Estimated {
				t.Errorf("usage, estimated %t (-want +got):\n%s", usage.Estimated, diff)
			}
			checkSecond(t, want.Usage, usage)
			recorded, err := os.ReadFile(filepath.Join(dir, names[i]))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range withheld {
				if bytes.Contains(answer.Body, []byte(`"`+name+`"`)) {
					t.Errorf("the client reads %s", name)
				}
			}
			if diff := cmp.Diff(values(t, recorded, model), values(t, answer.Body, model)); diff != "" {
				t.Errorf("the answer (-recorded +got):\n%s", diff)
			}
		})
	}
}

// checkSecond checks that a second model that a sample reports is billed on
// lines of its own, and that nothing is where there is none.
func checkSecond(t *testing.T, want map[string]any, usage *adminclient.UsageDetail) {
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
	for _, name := range []string{"input", "output"} { // all else is a part of these, at the same price
		if second[name] != nil {
			wanted[name] = second[name]
		}
	}
	if diff := cmp.Diff(wanted, lines); diff != "" {
		t.Errorf("lines of the second model (-want +got):\n%s", diff)
	}
}

// readSlowly calls the API, and calls back when the first bytes of the answer
// have come.
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

// replaced are the members that stand for a client or its conversation.
var replaced = []string{"user", "safety_identifier", "prompt_cache_key", "metadata", "store", "previous_response_id", "service_tier"}

// withheld are the members that say what the provider charges the gateway.
var withheld = []string{"cost", "cost_details", "is_byok", "cost_in_usd_ticks"}

// values are the JSON values of an answer in one piece, or of the events of a
// stream, without what the gateway replaces.
func values(t *testing.T, body []byte, model string) []any {
	t.Helper()
	texts := []string{string(body)}
	if !json.Valid(body) {
		texts = nil
		for _, ev := range (&rig.Answer{Body: body}).Events() {
			// A keepalive, which old clients fail on, becomes a comment.
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

// neutral returns the value without what is replaced, and with one name for
// the model.
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
