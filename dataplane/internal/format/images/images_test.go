package images

import (
	"encoding/json"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

func request(tb testing.TB, add string) *format.Request {
	tb.Helper()
	var obj jsonspan.Object
	if err := obj.Parse([]byte(`{"model":"m","prompt":"x"` + add + `}`)); err != nil {
		tb.Fatal(err)
	}
	r, e := Dialect{}.Read(&obj)
	if e != nil {
		tb.Fatal(e)
	}
	return r
}

func TestReservationAndSentRequestHaveTheSameNumberOfImages(t *testing.T) {
	t.Parallel()
	override := func(word, value string) *format.Policy {
		return policy.With(catalogkv.Params{"n": {Policy: word, Value: json.RawMessage(value)}})
	}
	tests := []struct {
		add    string
		policy *format.Policy
		want   int64
		sent   string
	}{
		{``, policy, 1, `1`},
		{`,"n":null`, policy, 1, `1`},
		{`,"n":4`, policy, 4, `4`},
		{`,"n":4.0`, policy, 4, `4`},
		{`,"n":0`, policy, 1, `1`},
		{`,"n":-7`, policy, 1, `1`},
		{`,"n":11`, policy, 10, `10`},
		{`,"n":1e99`, policy, 10, `10`},
		{`,"n":-99999999999999999999`, policy, 1, `1`},
		{`,"n":7`, override("clamp", `2`), 2, `2`},
		{`,"n":70`, override("clamp", `{"min":1,"max":20}`), 10, `10`},
		{`,"n":7`, override("forward", ``), 7, `7`},
		{`,"n":70`, override("forward", ``), 10, `10`},
		{`,"n":7`, override("drop", ``), 1, ``},
		{`,"n":7`, override("force", `2`), 2, `2`},
		{``, override("force", `2`), 2, `2`},
		{``, override("reject", ``), 1, ``},
	}
	for _, tt := range tests {
		r := request(t, tt.add)
		if e := r.Check(tt.policy, format.Rules{}); e != nil {
			t.Errorf("%s: %v", tt.add, e)
			continue
		}
		var sent map[string]json.RawMessage
		if err := json.Unmarshal(r.AppendUpstream(nil, format.Target{Policy: tt.policy}), &sent); err != nil {
			t.Fatal(err)
		}
		if got := string(sent["n"]); r.Images != tt.want || got != tt.sent {
			t.Errorf("%s: reserved for %d, sent %q; want %d, %q", tt.add, r.Images, got, tt.want, tt.sent)
		}
		r.Release()
	}
	for _, n := range []string{`1.5`, `"1"`, `true`, `[]`} {
		if e := request(t, `,"n":`+n).Check(policy, format.Rules{}); e == nil || e.Code != apierr.InvalidValue || e.Param != "n" {
			t.Errorf("n of %s: got %v", n, e)
		}
	}
}

func TestSizeAndQualityOfTheAnswerDetermineThePrice(t *testing.T) {
	t.Parallel()
	r := request(t, `,"size":"512x512","quality":"auto"`)
	if r.Size != "512x512" || r.Quality != "" {
		t.Errorf("got %q, %q", r.Size, r.Quality)
	}
	a := Dialect{}.NewAnswer(format.AnswerConfig{Request: r})
	defer a.Release()
	a.JSON(nil, []byte(`{"data":[{"url":"x"}],"quality":"high"}`))
	if u, _ := a.Usage(); u.Size != "512x512" || u.Quality != "high" || u.Images != 1 {
		t.Errorf("got %+v", u)
	}
}

func TestAppendErrorIsAnEvent(t *testing.T) {
	t.Parallel()
	got := string(Dialect{}.NewAnswer(format.AnswerConfig{}).AppendError(nil, apierr.New(422, apierr.GenerationFailed, "None."), "req_1"))
	want := "event: error\ndata: " + `{"type":"error","error":{"message":"None.","type":"invalid_request_error","code":"generation_failed","request_id":"req_1"}}` + "\n\n"
	if got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

// The cost of an animation grows with its frames: without them its price would be up to 16 times too low.
func TestFramesArePricedAsImages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		add    string
		policy *format.Policy
		frames int64
		images int64
	}{
		{`,"output_format":"gif","frame_count":16`, policy, 16, 32},
		{`,"output_format":"gif","frame_count":99`, policy, 16, 32},
		{`,"frame_count":0`, policy, 2, 4},
		{`,"output_format":"GIF"`, policy, 2, 4},
		{`,"output_format":"gif","frame_count":null`, policy, 2, 4},
		{`,"output_format":"gif"`, policy.With(catalogkv.Params{"frame_count": {Policy: "drop"}}), 1, 2},
		{`,"output_format":"png"`, policy, 1, 2},
		{`,"frame_count":16`, policy.With(catalogkv.Params{"frame_count": {Policy: "drop"}}), 1, 2},
	} {
		r := request(t, `,"n":2`+tt.add)
		if e := r.Check(tt.policy, format.Rules{}); e != nil {
			t.Fatal(e)
		}
		if got := max(r.Frames, 1); got != tt.frames {
			t.Errorf("%s: %d frames; want %d", tt.add, got, tt.frames)
		}
		a := Dialect{}.NewAnswer(format.AnswerConfig{Request: r})
		if _, ok := a.JSON(nil, []byte(`{"data":[{"b64_json":"eA=="},{"b64_json":"eA=="}]}`)); !ok {
			t.Fatal("the answer is refused")
		}
		if usage, _ := a.Usage(); usage.Images != tt.images {
			t.Errorf("%s: charged for %d images; want %d", tt.add, usage.Images, tt.images)
		}
		a.Release()
	}
}
