package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"modelgateway/shared/event"
)

// The same in all formats: a stream that fails costs what the provider has reported before, otherwise what it has delivered, and
// nothing if it has done neither.
func TestFailedStreamCostsWhatWasReportedOrDelivered(t *testing.T) {
	t.Parallel()
	// What stands in the first event of each format with a report of the input and without one.
	reports := map[string][2]string{
		"chat":      {`"finish_reason":null}]}`, `"finish_reason":null}],"usage":{"prompt_tokens":900,"completion_tokens":0,"total_tokens":900}}`},
		"responses": {`"usage":null`, `"usage":{"input_tokens":900,"output_tokens":0,"total_tokens":900}`},
		"messages":  {`"usage":{"input_tokens":10,"output_tokens":0}`, `"usage":{"input_tokens":900,"output_tokens":0}`},
	}
	for name, d := range dialects() {
		without, with := d.head, strings.Replace(d.head, reports[name][0], reports[name][1], 1)
		if without == with {
			t.Fatalf("%s: no place for a report in %s", name, d.head)
		}
		if name == "messages" {
			without = strings.Replace(d.head, reports[name][0], `"usage":{}`, 1)
		}
		for _, tt := range []struct {
			name, stream  string
			input, output int64
			free          bool
		}{
			{"nothing", without, 0, 0, true},
			{"a report", with, 900, 0, false},
			{"a text", without + d.text, 0, textTokens, false},
			{"a report and a text", with + d.text, 900, textTokens, false},
		} {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				t.Parallel()
				arrived := make(chan struct{})
				g := newGateway(t, func(w http.ResponseWriter, _ *http.Request) {
					sendEvents(w, tt.stream)
					<-arrived
					sendEvents(w, d.fault)
				})
				response := g.begin(t.Context(), http.MethodPost, d.path, strings.NewReader(d.body))
				defer func() { _ = response.Body.Close() }()
				close(arrived)
				if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
					t.Fatalf("got %d, %v", response.StatusCode, err)
				}
				e := g.spool.next(t)
				if e.Status != event.Failed || e.Usage.Output != tt.output || tt.input > 0 && e.Usage.TotalInput() != tt.input {
					t.Errorf("got %+v", e)
				}
				if free := e.Cost == 0 && e.Rule == event.RuleNone; free != tt.free || !free && e.Usage.TotalInput() == 0 {
					t.Errorf("got a cost of %d, rule %s, %+v", e.Cost, e.Rule, e.Usage)
				}
			})
		}
	}
}

// An event whose data are null says nothing: it does not end a stream, and no client gets it. Whatever else is no object is an
// error, and an object that the format does not know passes.
func TestEventThatSaysNothingIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, d := range dialects() {
		for _, tt := range []struct {
			data           string
			passes, failed bool
		}{
			{"null", false, false},
			{" null", false, false},
			{"{}", true, false},
			{`{"type":"x.y"}`, true, false},
			{`"The server had an error"`, false, true},
			{"7", false, true},
			{"[]", false, true},
		} {
			t.Run(name+", "+tt.data, func(t *testing.T) {
				t.Parallel()
				for _, stream := range [][]string{
					{"data: " + tt.data + "\n\n", d.head, d.text, d.end},
					{d.head, "data: " + tt.data + "\n\n", d.text, d.end},
				} {
					g := newGateway(t, streamAnswer(strings.Join(stream, "")))
					got := g.post(d.path, d.body)
					e := g.spool.next(t)
					if failed := e.Status == event.Failed; failed != tt.failed {
						t.Errorf("got %d %s, %+v", got.status, got.body, e)
					}
					if passes := strings.Contains(got.body, "data: "+tt.data+"\n"); passes != tt.passes {
						t.Errorf("%v: the client gets %s", passes, got.body)
					}
				}
			})
		}
	}
}
