package answer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
)

func TestEchoReturnsTheClientsValues(t *testing.T) {
	t.Parallel()
	var obj jsonspan.Object
	if err := obj.Parse([]byte(`{"model":"m","user":"me","store":true,"metadata":{"k":"v"},"prompt_cache_key":null}`)); err != nil {
		t.Fatal(err)
	}
	r, refused := (&format.Spec{}).Read(&obj)
	if refused != nil {
		t.Fatal(refused)
	}
	var sent, none Echo
	names := []string{"user", "store", "metadata", "prompt_cache_key"}
	sent.Capture(r, names)
	r.Release()
	none.Capture(nil, names)
	tests := []struct {
		name, raw  string
		want, bare string // with the parameter in the request, and without it
	}{
		{"user", `"hash"`, `"me"`, `"hash"`},
		{"user", `null`, `"me"`, `null`},
		{"user", `"me"`, `"me"`, `"me"`},
		{"store", `false`, `true`, `false`},
		{"metadata", `{}`, `{"k":"v"}`, `{}`},
		{"prompt_cache_key", `"hash"`, `null`, `"hash"`},
		{"prompt_cache_key", `{}`, `{}`, `{}`},
		{"else", `"x"`, `"x"`, `"x"`},
	}
	for _, tt := range tests {
		for e, want := range map[*Echo]string{&sent: tt.want, &none: tt.bare} {
			got, changed := e.Of([]byte(tt.name), []byte(tt.raw))
			if string(got) != want || changed != (want != tt.raw) {
				t.Errorf("%s of %s: got %s, changed %v; want %s", tt.name, tt.raw, got, changed, want)
			}
		}
	}
}

func TestIsTruncatedAndType(t *testing.T) {
	t.Parallel()
	type result struct {
		Cut, Done bool
		Type      string
	}
	tests := []struct {
		stream string
		want   result
	}{
		{"event: e\ndata: {}\n\n", result{Type: "e"}},
		{"data: {\"a\":{\"type\":\"no\"},\"type\":\"e\"}\n\n", result{Type: "e"}},
		{"data: {\"a\":1}", result{}},
		{"data: {\"a\":1", result{Cut: true}},
		{"data:  [DONE] ", result{Done: true}},
		{"data: [DONE]\n\n", result{Done: true}},
		{"data: [DON", result{Cut: true}},
		{"data: x\n\n", result{}},
	}
	for _, tt := range tests {
		var s sse.Splitter
		s.Feed([]byte(tt.stream))
		ev, ok := s.Next()
		if !ok {
			ev, _ = s.Flush()
		}
		got := result{IsTruncated(ev), IsDone(ev.Data), string(Type(ev))}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q: want -, got +:\n%s", tt.stream, diff)
		}
	}
}

func TestPassThroughDropsTruncatedEvents(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string]string{
		": hello\n": ": hello\n", ": hello": ": hello\n\n", "event: x\n\n": "event: x\n\n", "event: x\n": "", "event: x": "",
	} {
		var s sse.Splitter
		s.Feed([]byte(stream))
		ev, ok := s.Next()
		if !ok {
			ev, _ = s.Flush()
		}
		if got, kind := new(Base).PassThrough(nil, ev); string(got) != want || kind != format.Other {
			t.Errorf("%q: got %q, %v; want %q", stream, got, kind, want)
		}
	}
}

func TestVisibleEventsDiscloseNothingOfTheProvider(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string]string{
		": x-relay-provider=vendor\n": ":\n",
		": vendor":                    ":\n\n",
		"id: vendor/7\ndata: {}\n\n":  "data: {}\n\n",
		"event: e\r\nid: vendor/7\r\nretry: 5\r\ndata:{}\r\n\r\n":    "event: e\ndata: {}\n\n",
		"data: {\n: vendor\ndata: }\nvendor\n\n":                     "data: {\ndata: }\n\n",
		"id: vendor/7\n\n":                                           "",
		"event: vendor\nid: 7\n\n":                                   "",
		"event: e\ndata:{}\n\n":                                      "event: e\ndata:{}\n\n",
		"database: vendor\nevents: vendor\ndata: [DONE]\nid: vendor": "data: [DONE]\n\n\n",
	} {
		var s sse.Splitter
		s.Feed([]byte(stream))
		ev, ok := s.Next()
		if !ok {
			ev, _ = s.Flush()
		}
		if got := new(Base).Visible(ev).AppendTerminated(nil); string(got) != want {
			t.Errorf("%q: got %q; want %q", stream, got, want)
		}
	}
}

func TestTrimKeepsSmallBuffersOnly(t *testing.T) {
	t.Parallel()
	if got := Trim(make([]byte, 5, 100)); len(got) != 0 || cap(got) != 100 {
		t.Errorf("got len %d, cap %d", len(got), cap(got))
	}
	if got := Trim(make([]byte, 5, maxPooledBytes+1)); got != nil {
		t.Errorf("kept %d bytes", cap(got))
	}
}
