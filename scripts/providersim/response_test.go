package providersim

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readResponse checks the numbers and names of the events, and returns their types.
func readResponse(t *testing.T, frames []frame) (kinds []string, events []responseEvent) {
	t.Helper()
	for i, f := range frames {
		e := decode[responseEvent](t, f.data)
		if f.name != e.Type {
			t.Errorf("event is named %q, its data %q", f.name, e.Type)
		}
		if e.SequenceNumber != int64(i) {
			t.Errorf("event %d has sequence number %d", i, e.SequenceNumber)
		}
		kinds, events = append(kinds, strings.TrimPrefix(e.Type, "response.")), append(events, e)
	}
	return kinds, events
}

func TestResponseStreamOrder(t *testing.T) {
	t.Parallel()
	message := []string{
		"output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
		"output_text.done", "content_part.done", "output_item.done",
	}
	start := []string{"created", "in_progress"}
	tests := []struct {
		name   string
		change map[string]string
		want   [][]string
	}{
		{"text", streamed("out=2"), [][]string{start, message, {"completed"}}},
		{"reasoning", streamed("out=2,reasoning=3"), [][]string{
			start,
			{"output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"},
			message,
			{"completed"},
		}},
		{"refusal", streamed("out=1,refuse"), [][]string{start, {"output_item.added", "content_part.added", "refusal.delta", "refusal.done", "content_part.done", "output_item.done", "completed"}}},
		{"filter", streamed("out=2,filter"), [][]string{start, message, {"incomplete"}}},
		{"error", streamed("error=3"), [][]string{start, {"output_item.added", "error", "failed"}}},
		{"keepalive", streamed("out=0,keepalive"), [][]string{{
			"created", "keepalive", "in_progress", "keepalive", "output_item.added", "keepalive", "content_part.added", "keepalive",
			"output_text.done", "keepalive", "content_part.done", "keepalive", "output_item.done", "keepalive", "completed",
		}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			kinds, _ := readResponse(t, b.stream(t, Responses, tt.change))
			var want []string
			for _, part := range tt.want {
				want = append(want, part...)
			}
			if diff := cmp.Diff(want, kinds); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// The last event contains the JSON answer.
func TestResponseStreamMatchesJSON(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	change := map[string]string{
		"model": `"sim@reasoning=2,out=30"`, "max_output_tokens": "16", "instructions": `"be brief"`, "metadata": `{"a":"b"}`,
		"store": "false", "temperature": "0.5", "include": `["reasoning.encrypted_content"]`, "user": `"u1"`,
	}
	_, body := b.ask(t, Responses, change)
	want := decode[responseObject](t, body)
	change["stream"] = "true"
	_, events := readResponse(t, b.stream(t, Responses, change))
	got := *events[len(events)-1].Response
	fix := func(o *responseObject) {
		o.ID, o.CreatedAt = "", 0
		for i := range o.Output {
			o.Output[i].ID = ""
		}
	}
	fix(&want)
	fix(&got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("final object (-JSON +stream):\n%s", diff)
	}
	if want.Status != "incomplete" || want.IncompleteDetails.Reason != "max_output_tokens" || want.CompletedAt != nil {
		t.Errorf("JSON is not an incomplete answer: %s", body)
	}
	for _, e := range events[:2] {
		o := e.Response
		if o.Status != "in_progress" || o.Usage != nil || len(o.Output) != 0 || string(o.Instructions) != `"be brief"` || string(o.Metadata) != `{"a":"b"}` {
			t.Errorf("%s carries %+v", e.Type, o)
		}
	}
}

func TestResponseDeltasAddUpToTheText(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	_, events := readResponse(t, b.stream(t, Responses, streamed("out=5")))
	var joined, whole string
	for _, e := range events {
		switch e.Type {
		case "response.output_text.delta":
			joined += *e.Delta
		case "response.output_text.done":
			whole = *e.Text
		}
	}
	if joined != fiveWords || whole != fiveWords {
		t.Errorf("deltas %q, whole %q; want %q", joined, whole, fiveWords)
	}
}

func TestResponseToolCall(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	change := map[string]string{
		"tools":       `[{"type":"function","name":"look","parameters":{"required":["on"],"properties":{"on":{"type":"boolean"}}}}]`,
		"tool_choice": `{"type":"function","name":"look"}`,
	}
	_, body := b.ask(t, Responses, change)
	item := decode[responseObject](t, body).Output[0]
	if item.Type != "function_call" || item.Name != "look" || *item.Arguments != `{"on":true}` || item.CallID == "" {
		t.Errorf("JSON item %+v", item)
	}
	change["stream"] = "true"
	kinds, events := readResponse(t, b.stream(t, Responses, change))
	want := []string{
		"created", "in_progress", "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
		"function_call_arguments.done", "output_item.done", "completed",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := *events[3].Delta + *events[4].Delta; got != `{"on":true}` || *events[5].Arguments != got {
		t.Errorf("arguments %q", got)
	}
}

func TestResponseFlatError(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	frames := b.stream(t, Responses, streamed("error=2,error_style=flat,code=rate_limit_exceeded,message=wait"))
	last := frames[len(frames)-1]
	want := frame{"error", `{"type":"error","sequence_number":2,"code":"rate_limit_exceeded","message":"wait","param":null}`}
	if len(frames) != 3 || last != want {
		t.Errorf("last of %d frames %v; want %v", len(frames), last, want)
	}
}

func TestReferencesToStoredResponsesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	tests := []struct {
		change map[string]string
		status int
		want   string
	}{
		{map[string]string{"previous_response_id": `"resp_1"`}, 400, "invalid_request_error/previous_response_not_found/previous_response_id"},
		{map[string]string{"conversation": `"conv_1"`}, 400, "invalid_request_error/conversation_not_found/conversation"},
		{map[string]string{"background": "true"}, 400, "invalid_request_error/unsupported_parameter/background"},
		{map[string]string{"input": `[{"type":"item_reference","id":"rs_1"}]`}, 404, "invalid_request_error//input"},
		{map[string]string{"input": `[{"type":"reasoning","id":"rs_1","summary":[]}]`}, 404, "invalid_request_error//input"},
		{map[string]string{"tools": `[{"type":"function","name":"f","defer_loading":true}]`}, 400, "invalid_request_error/invalid_value/tools"},
	}
	for _, tt := range tests {
		status, body := b.ask(t, Responses, tt.change)
		if got := errorOf(t, Responses, body); status != tt.status || got != tt.want {
			t.Errorf("%v answered %d %s; want %d %s", tt.change, status, got, tt.status, tt.want)
		}
	}
	if status, body := b.ask(t, Responses, map[string]string{"background": "false", "conversation": "null"}); status != http.StatusOK {
		t.Errorf("harmless values answered %d %s", status, body)
	}
}
