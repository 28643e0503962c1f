package messages

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
	if err := obj.Parse([]byte(`{"model":"m","max_tokens":9` + add + `}`)); err != nil {
		tb.Fatal(err)
	}
	r, e := Dialect{}.Read(&obj)
	if e != nil {
		tb.Fatal(e)
	}
	return r
}

func TestMetadataHasAPseudonymOnly(t *testing.T) {
	t.Parallel()
	hash := func(v string) string { return "hash of " + v }
	tests := []struct {
		name, add, want string
		target          format.Target
	}{
		{"replaced", `,"metadata":{"user_id":"{\"device\":1}","else":2}`, `{"user_id":"hash of {\"device\":1}"}`, format.Target{IdentityFunc: hash}},
		{"no user", `,"metadata":{"else":2}`, ``, format.Target{IdentityFunc: hash}},
		{"user null", `,"metadata":{"user_id":null}`, ``, format.Target{IdentityFunc: hash}},
		{"user no string", `,"metadata":{"user_id":[1]}`, ``, format.Target{IdentityFunc: hash}},
		{"no identities", `,"metadata":{"user_id":"me"}`, ``, format.Target{}},
		{"pseudonym", ``, `{"user_id":"acc"}`, format.Target{IdentityFunc: hash, PseudonymFunc: pseudonym, WantsUser: true}},
		{"own user wins", `,"metadata":{"user_id":"me"}`, `{"user_id":"hash of me"}`, format.Target{IdentityFunc: hash, PseudonymFunc: pseudonym, WantsUser: true}},
		{"not wanted", ``, ``, format.Target{IdentityFunc: hash, PseudonymFunc: pseudonym}},
		{
			"dropped for the provider", `,"metadata":{"user_id":"me"}`, ``,
			format.Target{IdentityFunc: hash, PseudonymFunc: pseudonym, WantsUser: true, Policy: policy.With(catalogkv.Params{"metadata": {Policy: "drop"}})},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.target.Policy == nil {
				tt.target.Policy = policy
			}
			var sent map[string]json.RawMessage
			if err := json.Unmarshal(request(t, tt.add).AppendUpstream(nil, tt.target), &sent); err != nil {
				t.Fatal(err)
			}
			if got := string(sent["metadata"]); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}

func TestCacheWritesWithoutSplitCountAsOneHourOnlyIfAllMarksDo(t *testing.T) {
	t.Parallel()
	const (
		short = `{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`
		hour  = `{"type":"text","text":"\"cache_control\":{}","cache_control" : {"type":"ephemeral","ttl":"1h"}}`
	)
	tests := []struct {
		add  string
		want bool
	}{
		{``, false},
		{`,"messages":[{"content":"\"cache_control\":{\"ttl\":\"1h\"}"}]`, false},
		{`,"system":[` + hour + `]`, true},
		{`,"system":[` + hour + `],"messages":[{"content":[` + hour + `,` + short + `]}]`, false},
		{`,"tools":[{"name":"x","cache_control":null}],"messages":[{"content":[` + hour + `]}]`, true},
		{`,"cache_control":{"type":"ephemeral","ttl":"1h"}`, true},
		{`,"cache_control":{"type":"ephemeral"},"system":[` + hour + `]`, false},
		{`,"cache_control":null,"system":[` + hour + `]`, true},
	}
	for _, tt := range tests {
		if got := usesOneHourCache(request(t, tt.add)); got != tt.want {
			t.Errorf("%s: got %v", tt.add, got)
		}
		a := Dialect{}.NewAnswer(format.AnswerConfig{Request: request(t, tt.add)})
		a.JSON(nil, []byte(`{"content":[],"usage":{"cache_creation_input_tokens":7,"output_tokens":1}}`))
		u, _ := a.Usage()
		if hourly := u.CacheWrite1h == 7; hourly != tt.want || u.CacheWrite1h+u.CacheWrite5m != 7 {
			t.Errorf("%s: got %+v", tt.add, u)
		}
		a.Release()
	}
	if usesOneHourCache(nil) {
		t.Error("no request asks for an hour")
	}
}

func TestAppendErrorUsesTheFormatsEnvelope(t *testing.T) {
	t.Parallel()
	got := string(Dialect{}.NewAnswer(format.AnswerConfig{}).AppendError([]byte("before\n\n"), apierr.New(502, apierr.UpstreamUnavailable, "Away."), "req_1"))
	want := "before\n\nevent: error\n" +
		`data: {"type":"error","error":{"message":"Away.","type":"api_error","code":"upstream_unavailable"},"request_id":"req_1"}` + "\n\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestMaxTokensIsTheOutputLimit(t *testing.T) {
	t.Parallel()
	if r := request(t, ``); r.MaxOutput != 9 {
		t.Errorf("got %d; want 9", r.MaxOutput)
	}
}

func pseudonym() string { return "acc" }
