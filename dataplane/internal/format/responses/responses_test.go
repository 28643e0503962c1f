package responses

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/apierr"
)

func newAnswer(tb testing.TB, body string) format.Answer {
	tb.Helper()
	var obj jsonspan.Object
	if err := obj.Parse([]byte(body)); err != nil {
		tb.Fatal(err)
	}
	r, e := Dialect{}.Read(&obj)
	if e != nil {
		tb.Fatal(e)
	}
	defer r.Release()
	a := Dialect{}.NewAnswer(format.AnswerConfig{Request: r})
	tb.Cleanup(a.Release)
	return a
}

func feed(a format.Answer, stream string) (out []byte, kinds []string) {
	var s sse.Splitter
	defer s.Close()
	s.Feed([]byte(stream))
	for ev, ok := s.Next(); ok; ev, ok = s.Next() {
		var kind format.Kind
		out, kind = a.Event(out, ev)
		kinds = append(kinds, kind.String())
	}
	return out, kinds
}

// frame is one event as a client reads it.
type frame struct {
	Name string
	Data map[string]any
}

func frames(tb testing.TB, stream []byte) (all []frame) {
	tb.Helper()
	var s sse.Splitter
	s.Feed(stream)
	for ev, ok := s.Next(); ok; ev, ok = s.Next() {
		f := frame{Name: string(ev.Name)}
		if err := json.Unmarshal(ev.Data, &f.Data); err != nil {
			tb.Fatalf("%s: %v", ev.Data, err)
		}
		all = append(all, f)
	}
	return all
}

const created = `event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":5,"status":"in_progress","error":null,"model":"up","instructions":"be brief","output":[],"user":"hash","store":false,"metadata":{},"usage":null}}

`

func TestEveryResponseRepeatsTheClientsValues(t *testing.T) {
	t.Parallel()
	a := newAnswer(t, `{"model":"m","input":"x","user":"me","store":true,"metadata":{"k":"v"}}`)
	last := strings.NewReplacer("response.created", "response.completed", "in_progress", "completed", `"output":[]`, `"output":[{}]`).Replace(created)
	out, kinds := feed(a, created+strings.ReplaceAll(created, ".created", ".in_progress")+last)
	if diff := cmp.Diff([]string{"other", "other", "terminal"}, kinds); diff != "" {
		t.Error(diff)
	}
	for _, f := range frames(t, out) {
		r := f.Data["response"].(map[string]any)
		got := []any{r["model"], r["user"], r["store"], r["metadata"], r["instructions"]}
		want := []any{"m", "me", true, map[string]any{"k": "v"}, "be brief"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", f.Name, diff)
		}
	}
}

func TestAppendErrorFailsTheResponse(t *testing.T) {
	t.Parallel()
	a := newAnswer(t, `{"model":"m","input":"x","user":"me"}`)
	feed(a, created+"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\": 41,\"delta\":\"x\"}\n\n")
	e := &apierr.Error{Status: 429, Code: apierr.RateLimitExceeded, Message: "Too many.", RetryAfter: 3 * time.Second}
	got := frames(t, a.AppendError(nil, e, "req_1"))
	want := []frame{
		{"error", map[string]any{
			"type": "error", "sequence_number": 42.0,
			"error": map[string]any{"message": "Too many.", "type": "rate_limit_error", "code": "rate_limit_exceeded", "request_id": "req_1"},
		}},
		{"response.failed", map[string]any{
			"type": "response.failed", "sequence_number": 43.0,
			"response": map[string]any{
				"id": "resp_1", "object": "response", "created_at": 5.0, "status": "failed", "model": "m", "instructions": "be brief",
				"error":  map[string]any{"code": "rate_limit_exceeded", "message": "Too many. Please try again in 3s."},
				"output": []any{}, "user": "me", "store": false, "metadata": map[string]any{}, "usage": nil,
			},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestAppendErrorReusesTheNumberOfTheProvidersFailure(t *testing.T) {
	t.Parallel()
	for _, failure := range []string{
		"event: error\ndata: {\"type\":\"error\",\"sequence_number\":1,\"message\":\"x\"}\n\nevent: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":2,\"response\":{}}\n\n",
		"event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":1,\"response\":{\"status\":\"failed\"}}\n\n",
	} {
		a := newAnswer(t, `{"model":"m","input":"x"}`)
		if out, _ := feed(a, created+failure); len(frames(t, out)) != 1 {
			t.Errorf("a failure is passed on: %s", out)
		}
		got := frames(t, a.AppendError(nil, apierr.New(502, apierr.UpstreamUnavailable, "x"), "r"))
		if got[0].Data["sequence_number"] != 1.0 || got[1].Data["sequence_number"] != 2.0 {
			t.Errorf("got %v and %v; want 1 and 2", got[0].Data["sequence_number"], got[1].Data["sequence_number"])
		}
	}
}

// The failed response has all members that strict clients require.
func TestAppendErrorBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]format.Answer{"nothing read": newAnswer(t, `{"model":"m","input":"x"}`), "no request": Dialect{}.NewAnswer(format.AnswerConfig{})} {
		got := frames(t, state.AppendError(nil, apierr.New(500, apierr.None, "Ours."), "req_1"))
		if len(got) != 2 || got[0].Data["sequence_number"] != 0.0 || got[1].Data["sequence_number"] != 1.0 {
			t.Fatalf("%s: got %v", name, got)
		}
		r := got[1].Data["response"].(map[string]any)
		for _, member := range []string{"id", "object", "created_at", "status", "error", "model", "output", "tools", "tool_choice", "usage"} {
			if _, ok := r[member]; !ok {
				t.Errorf("%s: no %s", name, member)
			}
		}
		want := map[string]any{"code": "server_error", "message": "Ours."}
		if diff := cmp.Diff(want, r["error"]); diff != "" || r["status"] != "failed" {
			t.Errorf("%s: status %v, error want -, got +:\n%s", name, r["status"], diff)
		}
	}
}

func TestEventsWithoutNumbersAreCounted(t *testing.T) {
	t.Parallel()
	a := newAnswer(t, `{"model":"m","input":"x"}`)
	feed(a, "event: ping\ndata: {}\n\nevent: ping\ndata: {}\n\n")
	if got := frames(t, a.AppendError(nil, apierr.New(502, apierr.UpstreamUnavailable, "x"), "r")); got[0].Data["sequence_number"] != 2.0 {
		t.Errorf("got %v; want 2", got[0].Data["sequence_number"])
	}
}

func TestAllDeltasExceptAudioCountAsDelivered(t *testing.T) {
	t.Parallel()
	a := newAnswer(t, `{"model":"m","input":"x"}`)
	for _, kind := range []string{"output_text", "refusal", "reasoning_text", "reasoning_summary_text", "function_call_arguments", "custom_tool_call_input", "code_interpreter_call_code"} {
		feed(a, `data: {"type":"response.`+kind+`.delta","delta": "\u20acbcd"}`+"\n\n")
	}
	feed(a, `data: {"type":"response.audio.delta","delta":"UklGRg=="}`+"\n\n")
	if got, want := a.DeliveredTokens(), format.EstimateTokens(7*6); got != want {
		t.Errorf("got %d; want %d", got, want)
	}
}

// Some providers send items as a whole. Texts that have come in parts before count once.
func TestTextsOfWholeItemsCountAsDelivered(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("word ", 20)
	delta := event("output_text.delta", `"delta":"`+text+`"`)
	message := `{"type":"message","content":[{"type":"output_text","text":"` + text + `"}]}`
	call := `{"type":"function_call","name":"f","arguments":"` + text + `"}`
	shell := `{"type":"shell_call","action":{"commands":["` + text + `"]}}`
	patch := `{"type":"apply_patch_call","operation":{"type":"update_file","diff":"` + text + `"}}`
	done := func(item string) string { return event("output_item.done", `"item":`+item) }
	completed := func(items string) string {
		return event("completed", `"response":{"id":"r","status":"completed","output":[`+items+`]}`)
	}
	for name, tt := range map[string]struct {
		stream string
		want   int
	}{
		"in parts and as a whole":           {delta + done(message) + completed(message), len(text)},
		"items":                             {done(message) + done(shell) + done(patch) + completed(""), 3 * len(text)},
		"text in parts, then a whole call":  {delta + done(message) + done(call) + completed(message+","+call), 2*len(text) + 1},
		"a whole call, then text in parts":  {done(call) + delta + done(message) + completed(""), 2*len(text) + 1},
		"all of it in the last event":       {completed(message + "," + shell), 2 * len(text)},
		"a part that is missing in the end": {delta + delta + completed(message), 2 * len(text)},
		"results of tools":                  {done(`{"type":"shell_call_output","output":[{"text":"`+text+`"}]}`) + completed(message), len(text)},
	} {
		a := newAnswer(t, `{"model":"m","input":"x"}`)
		feed(a, tt.stream)
		if got, want := a.DeliveredTokens(), format.EstimateTokens(int64(tt.want)); got != want {
			t.Errorf("%s: got %d tokens; want %d", name, got, want)
		}
	}
}

func event(kind, members string) string {
	return "event: response." + kind + "\n" + `data: {"type":"response.` + kind + `",` + members + "}\n\n"
}
