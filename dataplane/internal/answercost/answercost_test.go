package answercost

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

func charge(f catalogkv.Format) *Charge {
	return Of(f, "USD", &event.Usage{Rule: event.RuleReported, Cost: 1, Usage: price.Usage{Input: 3, CachedInput: 4, Output: 2}}, true)
}

const members = `"cost":0.000000001,"cost_currency":"USD"`

func TestCostGoesIntoTheUsageThatClientsRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		format     catalogkv.Format
		body, want string
	}{
		{"at the end", catalogkv.Chat, `{"usage":{"a":1},"b":2}`, `{"usage":{"a":1,` + members + `},"b":2}`},
		{"empty", catalogkv.Chat, `{ "usage" : { } }`, `{ "usage" : { ` + members + `} }`},
		{"named with escapes", catalogkv.Chat, `{"\u0075sage":{"a":[{}]}}`, `{"\u0075sage":{"a":[{}],` + members + `}}`},
		{"twice", catalogkv.Chat, `{"usage":{"a":1},"usage":{"a":2}}`, `{"usage":{"a":1},"usage":{"a":2,` + members + `}}`},
		{"null", catalogkv.Chat, `{"usage":null}`, `{"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,` + members + `}}`},
		{"absent, responses", catalogkv.Responses, `{"a":1}`, `{"a":1,"usage":{"input_tokens":7,"output_tokens":2,"total_tokens":9,` + members + `}}`},
		{"absent, messages", catalogkv.Messages, `{"a":1}`, `{"a":1,"usage":{"input_tokens":3,"output_tokens":2,` + members + `}}`},
		{"absent, images", catalogkv.Images, `{}`, `{"usage":{` + members + `}}`},
		{"elsewhere", catalogkv.Chat, `{"x":{"usage":{}},"y":"\"usage\":{}"}`, `{"x":{"usage":{}},"y":"\"usage\":{}","usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,` + members + `}}`},
		{"truncated", catalogkv.Chat, `{"usage":{"a":1}`, `{"usage":{"a":1}`},
		{"no object", catalogkv.Chat, `[1]`, `[1]`},
	} {
		before, cost, after := charge(tt.format).JSON([]byte(tt.body))
		if got := string(slices.Concat(before, cost, after)); got != tt.want {
			t.Errorf("%s: got  %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestEventsKeepTheirFraming(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		format     catalogkv.Format
		last       format.Kind
		event, end string
		want       string
	}{
		{
			"messages, with CRLF", catalogkv.Messages, format.Terminal,
			"event: message_delta\r\ndata:{\"type\":\"message_delta\",\"usage\":{\"a\":1}}\r\n\r\n", "event: message_stop\r\ndata: {}\r\n\r\n",
			"event: message_delta\r\ndata:{\"type\":\"message_delta\",\"usage\":{\"a\":1," + members + "}}\r\n\r\nevent: message_stop\r\ndata: {}\r\n\r\n",
		},
		{
			"responses", catalogkv.Responses, format.Terminal,
			"", "data: {\"response\":{\"usage\":{}},\"n\":1}\n\n", "data: {\"response\":{\"usage\":{" + members + "}},\"n\":1}\n\n",
		},
		{
			"chat, output after the usage", catalogkv.Chat, format.Content,
			"data: {\"usage\":{}}\n\n", "data: {\"choices\":[{}]}\n\n", "data: {\"usage\":{}}\n\ndata: {\"choices\":[{}]}\n\n",
		},
	} {
		s := NewStream(true, tt.format)
		out := []byte("before;")
		add := func(text string, kind format.Kind) {
			from := len(out)
			out = s.Event(append(out, text...), from, kind, false)
		}
		add(tt.event, format.Other)
		add(tt.end, tt.last)
		if out = s.End(out, charge(tt.format)); string(out) != "before;"+tt.want {
			t.Errorf("%s: got  %q\nwant %q", tt.name, out, "before;"+tt.want)
		}
	}
}

// What is kept is bounded, whatever follows the usage.
func TestKeptBytesAreBounded(t *testing.T) {
	t.Parallel()
	s := NewStream(true, catalogkv.Messages)
	out := s.Event([]byte("data: {\"type\":\"message_delta\"}\n\n"), 0, format.Other, false)
	for range maxHeld {
		from := len(out)
		out = s.Event(append(out, ":\n\n"...), from, format.Other, false)
	}
	if len(s.held) > maxHeld || len(out) < 2*maxHeld {
		t.Errorf("%d bytes are kept, %d were passed on", len(s.held), len(out))
	}
}

func TestUnknownChargesAreNone(t *testing.T) {
	t.Parallel()
	known := event.Usage{Rule: event.RuleReported, MaxOutput: 10}
	beyond := known
	beyond.Usage.Output = 1 << 40
	none := event.Usage{Rule: event.RuleNone}
	for name, c := range map[string]*Charge{
		"no event":          Of(catalogkv.Chat, "USD", nil, true),
		"not stored":        Of(catalogkv.Chat, "USD", &known, false),
		"for an operator":   Of(catalogkv.Chat, "USD", &beyond, true),
		"nothing charged":   Of(catalogkv.Chat, "USD", &none, true),
		"without a catalog": Of(catalogkv.Chat, "", &known, true),
	} {
		if c != nil {
			t.Errorf("%s: got %+v", name, c)
		}
	}
	if Of(catalogkv.Chat, "USD", &known, true) == nil {
		t.Error("a charge of zero that is known is not told")
	}
}

func TestWhoDoesNotAskCostsNothing(t *testing.T) {
	body, h := []byte(`{"usage":{}}`), http.Header{"X-Include-Cost": {"0"}}
	if n := testing.AllocsPerRun(100, func() {
		s := NewStream(Asked(h), catalogkv.Chat)
		out := s.End(s.Event(body, 0, format.Terminal, true), nil)
		var c *Charge
		if before, cost, after := c.JSON(out); &before[0] != &body[0] || cost != nil || after != nil {
			t.Error("the answer has changed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Without asking, an event takes as long as a comparison with nil.
func BenchmarkUnasked(b *testing.B) {
	s, out := NewStream(false, catalogkv.Chat), []byte("data: {}\n\n")
	for b.Loop() {
		out = s.Event(out, 0, format.Content, false)
	}
}

// The wait for the end begins when the model has ended, and is over with the event or with output after it.
func TestKeptEventEndsTheCallInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		usage, called := []byte("data: {\"usage\":{},\"choices\":[]}\n\n"), 0
		cancel := func() { called++ }
		s := NewStream(true, catalogkv.Chat)
		s.Event(usage, 0, format.Other, false)
		s.Watch(false, cancel)
		time.Sleep(time.Minute)
		s.Watch(true, cancel)
		time.Sleep(maxWait - time.Second)
		s.Event([]byte("data: {\"choices\":[{}]}\n\n"), 0, format.Content, true)
		s.Watch(true, cancel)
		time.Sleep(time.Minute)
		if called != 0 || s.Overdue() {
			t.Errorf("ended %d times before it was due", called)
		}
		s.Event(usage, 0, format.Other, true)
		s.Watch(true, cancel)
		time.Sleep(maxWait)
		synctest.Wait()
		if called != 1 || !s.Overdue() {
			t.Errorf("ended %d times; want once", called)
		}
		s.Watch(false, nil)
		var none *Stream
		if none.Watch(true, cancel); none.Overdue() {
			t.Error("a stream without a cost is overdue")
		}
	})
}
