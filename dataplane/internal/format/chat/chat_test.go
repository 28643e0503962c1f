package chat

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

func request(tb testing.TB, body string) *format.Request {
	tb.Helper()
	var obj jsonspan.Object
	if err := obj.Parse([]byte(body)); err != nil {
		tb.Fatal(err)
	}
	r, e := Dialect{}.Read(&obj)
	if e != nil {
		tb.Fatal(e)
	}
	return r
}

func TestReadChoicesLimitsAndStream(t *testing.T) {
	t.Parallel()
	r := request(t, `{"model":"m","messages":[],"n":3,"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`)
	if r.N != 3 || r.MaxOutput != 5 || !r.Stream || !r.IncludeUsage {
		t.Errorf("got %+v", r)
	}
	r = request(t, `{"model":"m","messages":[],"n":null,"stream_options":null}`)
	if r.N != 1 || r.MaxOutput != 0 || r.Stream || r.IncludeUsage {
		t.Errorf("got %+v", r)
	}
	for _, n := range []string{`0`, `-1`, `1.5`, `"2"`, `true`} {
		r := request(t, `{"model":"m","messages":[],"n":`+n+`}`)
		e := r.Check(policy, format.Rules{})
		if e == nil || e.Code != apierr.InvalidValue || e.Param != "n" || r.N != 1 {
			t.Errorf("n of %s: got %v, N %d", n, e, r.N)
		}
	}
	r = request(t, `{"model":"m","messages":[],"max_tokens":5,"max_completion_tokens":6}`)
	if e := r.Check(policy, format.Rules{}); e == nil || e.Code != apierr.InvalidValue || e.Param != "max_tokens" {
		t.Errorf("two limits: got %v", e)
	}
}

func TestStreamUsageIsAlwaysRequested(t *testing.T) {
	t.Parallel()
	dropped := policy.With(catalogkv.Params{"stream_options": {Policy: "drop"}})
	forced := policy.With(catalogkv.Params{"stream_options": {Policy: "force", Value: json.RawMessage(`{"x":1}`)}})
	tests := []struct {
		name, add, want string
		policy          *format.Policy
	}{
		{"usage is always requested", `,"stream":true`, `{"include_usage":true}`, policy},
		{"client requests usage", `,"stream":true,"stream_options":{"include_usage":true}`, `{"include_usage":true}`, policy},
		{"client declines usage", `,"stream":true,"stream_options":{"include_usage":false}`, `{"include_usage":true}`, policy},
		{"null", `,"stream":true,"stream_options":null`, `{"include_usage":true}`, policy},
		{"obfuscation stays", `,"stream":true,"stream_options":{"include_obfuscation":false}`, `{"include_usage":true,"include_obfuscation":false}`, policy},
		{"no obfuscation", `,"stream":true,"stream_options":{"include_obfuscation":null}`, `{"include_usage":true}`, policy},
		{"no stream", `,"stream_options":{"include_obfuscation":true}`, ``, policy},
		{"no stream either", `,"stream":false`, ``, policy},
		{"provider without stream options", `,"stream":true,"stream_options":{"include_usage":true}`, ``, dropped},
		{"forced by the policy", `,"stream":true`, `{"x":1}`, forced},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := request(t, `{"model":"m","messages":[]`+tt.add+`}`)
			var sent map[string]json.RawMessage
			if err := json.Unmarshal(r.AppendUpstream(nil, format.Target{Model: "u", Policy: tt.policy}), &sent); err != nil {
				t.Fatal(err)
			}
			if got := string(sent["stream_options"]); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}

func TestAppendErrorEndsTheStream(t *testing.T) {
	t.Parallel()
	e := apierr.New(502, apierr.UpstreamUnavailable, "The \"provider\"\nis away.")
	got := string(Dialect{}.NewAnswer(format.AnswerConfig{}).AppendError([]byte("before\n\n"), e, "req_1"))
	want := "before\n\n" + `data: {"error":{"message":"The \"provider\"\nis away.","type":"server_error","code":"upstream_unavailable","request_id":"req_1"}}` +
		"\n\ndata: [DONE]\n\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestStreamIsCompleteWhenAllChoicesHaveFinished(t *testing.T) {
	t.Parallel()
	a := Dialect{}.NewAnswer(format.AnswerConfig{Request: request(t, `{"model":"m","messages":[],"n":2}`)})
	defer a.Release()
	end := func(index string) []byte {
		return []byte(`data: {"id":"c","model":"m","choices":[{"index":` + index + `,"delta":{},"finish_reason":"stop"}]}` + "\n\n")
	}
	feed(a, end("0"))
	if out, ok := a.Finish(nil); ok || len(out) > 0 {
		t.Errorf("complete after one of two choices: %q", out)
	}
	feed(a, end("1"))
	if out, ok := a.Finish(nil); !ok || string(out) != doneEvent {
		t.Errorf("got %q, %v; want the end", out, ok)
	}
	if out, ok := a.Finish(nil); !ok || len(out) > 0 {
		t.Errorf("got %q, %v; want nothing more", out, ok)
	}
}

func TestAnswerRepeatsTheClientsValues(t *testing.T) {
	t.Parallel()
	a := Dialect{}.NewAnswer(format.AnswerConfig{Request: request(t, `{"model":"m","messages":[],"user":"me","metadata":{"k":"v"},"store":true}`)})
	defer a.Release()
	body := `{"id":"c","model":"up","user":"hash","metadata":null,"safety_identifier":"hash","store":false,"choices":[{"message":{}}]}`
	want := `{"id":"c","model":"m","user":"me","metadata":{"k":"v"},"safety_identifier":null,"store":true,"choices":[{"message":{}}]}`
	if out, ok := a.JSON(nil, []byte(body)); !ok || string(out) != want {
		t.Errorf("got %s, %v; want %s", out, ok, want)
	}
	same := []byte(want)
	if out, ok := a.JSON(nil, same); !ok || &out[0] != &same[0] {
		t.Error("an answer that needs no change is copied")
	}
}

func TestReleasedAnswersKeepNothing(t *testing.T) {
	t.Parallel()
	r := request(t, `{"model":"m","messages":[],"user":"me"}`)
	first := Dialect{}.NewAnswer(format.AnswerConfig{Request: r})
	feed(first, []byte(`data: {"id":"c","model":"up","error":"x"}`+"\n\n"))
	first.Release()
	second := Dialect{}.NewAnswer(format.AnswerConfig{Request: r, ClientModel: "alias"})
	defer second.Release()
	if u, reported := second.Usage(); reported || u != (price.Usage{}) || second.Failure() != nil || second.ProviderID() != "" || second.DeliveredTokens() != 0 {
		t.Error("an answer begins with the state of another")
	}
	out := feed(second, []byte(`data: {"id":"d","model":"up","choices":[{"delta":{"content":"x"}}]}`+"\n\n"))
	if !bytes.Contains(out, []byte(`"model":"alias"`)) {
		t.Errorf("got %s", out)
	}
}
