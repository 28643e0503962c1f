package affinity_test

import (
	"fmt"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/affinity"
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/chat"
	"modelgateway/dataplane/internal/format/images"
	"modelgateway/dataplane/internal/format/messages"
	"modelgateway/dataplane/internal/format/responses"
	"modelgateway/dataplane/internal/jsonspan"
)

// keyOf returns the key of a body.
func keyOf(t testing.TB, d format.Dialect, account, session, body string) uint64 {
	t.Helper()
	object := jsonspan.Acquire()
	defer object.Release()
	if err := object.Parse([]byte(body)); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	r, refused := d.Read(object)
	if refused != nil {
		t.Fatalf("%s: %v", body, refused)
	}
	defer r.Release()
	return affinity.Key(account, session, r)
}

func TestTurnsOfAConversationShareAKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 8191) + `\"\"b` // an escaped quote stands where the reading ends
	tests := []struct {
		name          string
		dialect       format.Dialect
		first, second string
	}{
		{
			"chat",
			chat.Dialect{},
			`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}]}`,
			`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"},{"role":"assistant","content":"Hi"},{"role":"user","content":"More"}]}`,
		},
		{
			"chat, whose text becomes a part",
			chat.Dialect{},
			`{"messages":[{"content":"Hello","role":"user"}],"model":"m"}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"Hello","prompt_cache_breakpoint":{}}]},{"role":"user","content":"More"}]}`,
		},
		{
			"chat, whose long text becomes a part",
			chat.Dialect{},
			`{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"` + long + `"}]},{"role":"user","content":"More"}]}`,
		},
		{
			"messages, whose mark of the cache moves",
			messages.Dialect{},
			`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"Hello","cache_control":{"type":"ephemeral"}}]}]}`,
			`{"model":"m","max_tokens":9,"system":"Be brief.","messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hi"},{"role":"user","content":"More"}]}`,
		},
		{
			"messages of a session",
			messages.Dialect{},
			`{"model":"m","max_tokens":9,"metadata":{"user_id":"u_session_1"},"messages":[{"role":"user","content":"Hello"}]}`,
			`{"model":"m","max_tokens":9,"metadata":{"user_id":"u_session_1"},"messages":[{"role":"user","content":"A summary"}]}`,
		},
		{
			"responses",
			responses.Dialect{},
			`{"model":"m","instructions":"Be brief.","input":"Hello"}`,
			`{"model":"m","instructions":"Be brief.","input":[{"role":"user","content":[{"type":"input_text","text":"Hello"}]},{"type":"reasoning","encrypted_content":"x"}]}`,
		},
		{
			"responses with a key of the prompt cache",
			responses.Dialect{},
			`{"model":"m","prompt_cache_key":"c1","user":"u1","input":"Hello"}`,
			`{"model":"m","prompt_cache_key":"c1","user":"u2","input":"Something else"}`,
		},
		{
			"chat of a user",
			chat.Dialect{},
			`{"model":"m","user":"u1","messages":[{"role":"user","content":"Hello"}]}`,
			`{"model":"m","user":"u1","messages":[{"role":"user","content":"Bye"}]}`,
		},
		{
			"responses of a user",
			responses.Dialect{},
			`{"model":"m","safety_identifier":"u1","input":"Hello"}`,
			`{"model":"m","safety_identifier":"u1","input":"Bye"}`,
		},
	}
	for _, tt := range tests {
		first := keyOf(t, tt.dialect, "acc_1", "", tt.first)
		if second := keyOf(t, tt.dialect, "acc_1", "", tt.second); first != second {
			t.Errorf("%s: the second turn has another key", tt.name)
		}
		if other := keyOf(t, tt.dialect, "acc_2", "", tt.first); other == first {
			t.Errorf("%s: another account has the same key", tt.name)
		}
	}
}

func TestOtherConversationsHaveOtherKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 100_000)
	keys := map[uint64]string{}
	add := func(name string, d format.Dialect, session, body string) {
		t.Helper()
		key := keyOf(t, d, "acc_1", session, body)
		if other, there := keys[key]; there {
			t.Errorf("%s has the key of %s", name, other)
		}
		keys[key] = name
	}
	add("a chat", chat.Dialect{}, "", `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`)
	add("other words", chat.Dialect{}, "", `{"model":"m","messages":[{"role":"user","content":"Bye"}]}`)
	add("another system", chat.Dialect{}, "", `{"model":"m","messages":[{"role":"developer","content":"x"},{"role":"user","content":"Hello"}]}`)
	add("a system of the same words", chat.Dialect{}, "", `{"model":"m","messages":[{"role":"system","content":"Hello"}]}`)
	add("a session", chat.Dialect{}, "s1", `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`)
	add("another session", chat.Dialect{}, "s2", `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`)
	add("a user with an empty name", chat.Dialect{}, "s3", `{"model":"m","user":"","messages":[{"role":"user","content":"Hello"}]}`)
	add("a user", chat.Dialect{}, "s3", `{"model":"m","user":"u","messages":[{"role":"user","content":"Hello"}]}`)
	add("a long system", messages.Dialect{}, "", `{"model":"m","max_tokens":9,"system":"`+long+`","messages":[{"role":"user","content":"Hello"}]}`)
	add("a long system and other words", messages.Dialect{}, "", `{"model":"m","max_tokens":9,"system":"`+long+`","messages":[{"role":"user","content":"Bye"}]}`)
	add("an image", images.Dialect{}, "", `{"model":"m","prompt":"a cat"}`)
	add("another image", images.Dialect{}, "", `{"model":"m","prompt":"a dog"}`)
	add("no text", chat.Dialect{}, "", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com"}}]},{}]}`)
}

// The account alone is the key of a request without a text.
func TestRequestWithoutATextHasAKey(t *testing.T) {
	t.Parallel()
	want := keyOf(t, chat.Dialect{}, "acc_1", "", `{"model":"m"}`)
	for _, body := range []string{
		`{"model":"m","prompt_cache_key":7,"user":{},"metadata":[]}`,
		`{"model":"m","messages":[1,[],"x",{"role":3,"content":"x"},{"content":"x"},{"role":"user"}]}`,
		`{"model":"m","messages":[]}`,
	} {
		if got := keyOf(t, chat.Dialect{}, "acc_1", "", body); got != want {
			t.Errorf("%s: got %x; want %x", body, got, want)
		}
	}
}

func TestKeyCostsNoMemory(t *testing.T) {
	object := jsonspan.Acquire()
	defer object.Release()
	r := readLong(t, object)
	defer r.Release()
	if got := testing.AllocsPerRun(100, func() { affinity.Key("acc_1", "", r) }); got > 0 {
		t.Errorf("%v allocations; want none", got)
	}
}

func readLong(t testing.TB, object *jsonspan.Object) *format.Request {
	t.Helper()
	var body strings.Builder
	_, _ = fmt.Fprintf(&body, `{"model":"m","messages":[{"role":"system","content":"%s"}`, strings.Repeat("system ", 3000))
	for i := range 200 {
		_, _ = fmt.Fprintf(&body, `,{"role":"user","content":[{"type":"text","text":"turn %d %s"}]}`, i, strings.Repeat("x", 1000))
	}
	if err := object.Parse([]byte(body.String() + "]}")); err != nil {
		t.Fatal(err)
	}
	r, refused := chat.Dialect{}.Read(object)
	if refused != nil {
		t.Fatal(refused)
	}
	return r
}

func BenchmarkKey(b *testing.B) {
	object := jsonspan.Acquire()
	defer object.Release()
	r := readLong(b, object)
	defer r.Release()
	b.ReportAllocs()
	for b.Loop() {
		affinity.Key("acc_1", "", r)
	}
}

// The costs of a long first message do not grow with it.
func BenchmarkKeyOfALongMessage(b *testing.B) {
	object := jsonspan.Acquire()
	defer object.Release()
	if err := object.Parse([]byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("some words ", 100_000) + `"}]}`)); err != nil {
		b.Fatal(err)
	}
	r, refused := chat.Dialect{}.Read(object)
	if refused != nil {
		b.Fatal(refused)
	}
	defer r.Release()
	b.ReportAllocs()
	for b.Loop() {
		affinity.Key("acc_1", "", r)
	}
}
