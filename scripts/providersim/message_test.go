package providersim

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readMessage assembles the message of a stream as a client does.
func readMessage(t *testing.T, frames []frame) (m message, kinds []string) {
	t.Helper()
	open := -1
	for _, f := range frames {
		kinds = append(kinds, f.name)
		var kind struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal([]byte(f.data), &kind); err != nil || kind.Type != f.name {
			t.Fatalf("event %q has data %s", f.name, f.data)
		}
		switch f.name {
		case "message_start":
			m = decode[messageStart](t, f.data).Message
		case "content_block_start":
			start := decode[blockStart](t, f.data)
			if open != -1 || start.Index != len(m.Content) {
				t.Errorf("block %d starts while %d is open", start.Index, open)
			}
			open, m.Content = start.Index, append(m.Content, start.ContentBlock)
		case "content_block_delta":
			d := decode[blockDelta](t, f.data)
			if d.Index != open {
				t.Errorf("delta for block %d while %d is open", d.Index, open)
			}
			extend(&m.Content[d.Index], d.Delta)
		case "content_block_stop":
			open = -1
		case "message_delta":
			end := decode[messageEnd](t, f.data)
			m.StopReason, m.StopDetails, m.Usage = end.Delta.StopReason, end.Delta.StopDetails, end.Usage
		}
	}
	return m, kinds
}

func extend(b *messageBlock, d messageDelta) {
	join := func(to **string, piece *string) {
		if piece != nil {
			whole := deref(*to) + *piece
			*to = &whole
		}
	}
	join(&b.Text, d.Text)
	join(&b.Thinking, d.Thinking)
	join(&b.Signature, d.Signature)
	if d.PartialJSON != nil {
		if string(b.Input) == "{}" {
			b.Input = nil
		}
		b.Input = append(b.Input, *d.PartialJSON...)
	}
}

func TestMessageStream(t *testing.T) {
	t.Parallel()
	text := []string{"content_block_start", "ping", "content_block_delta", "content_block_delta", "content_block_stop"}
	tests := []struct {
		name   string
		change map[string]string
		want   []string
		stop   string
	}{
		{"text", streamed("out=2"), append(append([]string{"message_start"}, text...), "message_delta", "message_stop"), "end_turn"},
		{"refusal", streamed("refuse"), []string{"message_start", "message_delta", "message_stop"}, "refusal"},
		{"thinking", streamed("reasoning=1,out=1"), []string{
			"message_start", "content_block_start", "ping", "content_block_delta", "content_block_delta", "content_block_stop",
			"content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
		}, "end_turn"},
		{"no room", map[string]string{"stream": "true", "max_tokens": "0"}, []string{"message_start", "message_delta", "message_stop"}, "max_tokens"},
		{"error", streamed("error=4"), []string{"message_start", "content_block_start", "ping", "content_block_delta", "error"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			m, kinds := readMessage(t, b.stream(t, Messages, tt.change))
			if diff := cmp.Diff(tt.want, kinds); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if got := deref(m.StopReason); got != tt.stop {
				t.Errorf("stop reason %q; want %q", got, tt.stop)
			}
		})
	}
}

// The events of a stream add up to the JSON answer.
func TestMessageStreamMatchesJSON(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change map[string]string
	}{
		{"text and thinking", model("reasoning=3,cached=2,cache_write=1")},
		{"cut by the limit", map[string]string{"max_tokens": "3"}},
		{"tool", map[string]string{
			"tools":       `[{"name":"look","input_schema":{"type":"object","required":["what"],"properties":{"what":{"enum":["sea","land"]}}}}]`,
			"tool_choice": `{"type":"any"}`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			_, body := b.ask(t, Messages, tt.change)
			want := decode[message](t, body)
			change := map[string]string{"stream": "true"}
			maps.Copy(change, tt.change)
			got, _ := readMessage(t, b.stream(t, Messages, change))
			for _, m := range []*message{&want, &got} {
				m.ID = ""
				for i := range m.Content {
					m.Content[i].ID = ""
				}
				// Only message_start has these.
				m.Usage.CacheCreation, m.Usage.ServiceTier, m.Usage.InferenceGeo, m.Usage.ServerToolUse = nil, "", "", nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("message (-JSON +stream):\n%s", diff)
			}
		})
	}
}

func TestMessageToolArguments(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	_, body := b.ask(t, Messages, map[string]string{
		"tools":       `[{"name":"a","input_schema":{}},{"name":"b","input_schema":{"required":["x","y"],"properties":{"x":{"type":"array"},"y":{"type":"object"}}}}]`,
		"tool_choice": `{"type":"tool","name":"b"}`,
	})
	block := decode[message](t, body).Content[0]
	if block.Type != "tool_use" || block.Name != "b" || string(block.Input) != `{"x":[],"y":{}}` {
		t.Errorf("block %+v, input %s", block, block.Input)
	}
}

func TestMessageUsageVariants(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	zero := b.stream(t, Messages, streamed("zero_start,out=2"))
	if !strings.Contains(zero[0].data, `"usage":{"input_tokens":0,"output_tokens":0}`) {
		t.Errorf("message_start %s", zero[0].data)
	}
	if got := b.last(t).Counts; got.Input != 8 || got.Output != 2 {
		t.Errorf("final counts %+v", got)
	}
	for _, f := range b.stream(t, Messages, streamed("nousage")) {
		if strings.Contains(f.data, `"usage"`) {
			t.Errorf("usage in %s", f.data)
		}
	}
	if e := b.last(t); e.Usage != nil || e.Counts != nil {
		t.Errorf("journal has usage %s", e.Usage)
	}
}

func TestMessageVersions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, version string
		change        map[string]string
		want          int
	}{
		{"missing", "", nil, 400},
		{"unknown", "2020-01-01", nil, 400},
		{"old allows temperature", "2023-06-01", map[string]string{"temperature": "0.5"}, 200},
		{"new", "2026-10-21", nil, 200},
		{"new refuses temperature", "2026-10-21", map[string]string{"temperature": "0.5"}, 400},
		{"new refuses a document of the assistant", "2026-10-21", map[string]string{"messages": `[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"document"}]}]`}, 400},
		{"new refuses citations of the user", "2026-10-21", map[string]string{"messages": `[{"role":"user","content":[{"type":"text","text":"a","citations":[{}]}]}]`}, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			r := b.request(t, http.MethodPost, paths[Messages], bodyOf(Messages, tt.change))
			r.Header.Del("Anthropic-Version")
			if tt.version != "" {
				r.Header.Set("Anthropic-Version", tt.version)
			}
			if got := do(t, r).StatusCode; got != tt.want {
				t.Errorf("status %d; want %d", got, tt.want)
			}
		})
	}
}

func TestMessageBetaParameters(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	body := bodyOf(Messages, map[string]string{"context_management": `{"edits":[]}`})
	for beta, want := range map[string]int{"": 400, "other-2025-01-01": 400, "a-1, context-management-2025-06-27": 200} {
		r := b.request(t, http.MethodPost, paths[Messages]+"?beta=true", body)
		r.Header.Set("Anthropic-Beta", beta)
		if got := do(t, r).StatusCode; got != want {
			t.Errorf("beta %q answered %d; want %d", beta, got, want)
		}
	}
}

func TestCacheScopeNeedsItsBeta(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	const scope = `"cache_control":{"type":"ephemeral","scope":"global"}`
	for name, tt := range map[string]struct {
		change map[string]string
		strict bool
	}{
		"of the request": {map[string]string{"cache_control": `{"type":"ephemeral","scope":"global"}`}, true},
		"of the system":  {map[string]string{"system": `[{"type":"text","text":"x",` + scope + `}]`}, true},
		"of a tool":      {map[string]string{"tools": `[{"name":"f","input_schema":{"type":"object"},` + scope + `}]`}, true},
		"of a block":     {map[string]string{"messages": `[{"role":"user","content":[{"type":"text","text":"x",` + scope + `}]}]`}, true},
		"none":           {map[string]string{"system": `[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]`}, false},
		"null":           {map[string]string{"cache_control": `{"type":"ephemeral","scope":null}`}, false},
		"of a schema": {map[string]string{
			"tools": `[{"name":"f","input_schema":{"type":"object","properties":{` + `"cache_control":{"type":"string","scope":"global"}}}}]`,
		}, false},
	} {
		for beta, want := range map[string]int{"": 400, "context-management-2025-06-27": 400, "prompt-caching-scope-2026-01-05": 200} {
			if !tt.strict {
				want = 200
			}
			r := b.request(t, http.MethodPost, paths[Messages], bodyOf(Messages, tt.change))
			r.Header.Set("Anthropic-Beta", beta)
			if got := do(t, r).StatusCode; got != want {
				t.Errorf("%s, beta %q: answered %d; want %d", name, beta, got, want)
			}
		}
	}
}
