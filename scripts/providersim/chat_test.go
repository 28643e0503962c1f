package providersim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chatReader assembles the answer of a chat stream and checks the order of its chunks.
type chatReader struct {
	texts    map[int64]string
	finish   map[int64]string
	usages   []chatUsage // non-null, in order
	nulls    int         // chunks with usage: null
	chunks   int
	toolArgs string
	toolName string
}

func readChat(t *testing.T, frames []frame) chatReader {
	t.Helper()
	r := chatReader{texts: map[int64]string{}, finish: map[int64]string{}}
	if len(frames) == 0 || frames[len(frames)-1].data != "[DONE]" {
		t.Fatalf("stream does not end in [DONE]: %v", frames)
	}
	var id string
	for _, f := range frames[:len(frames)-1] {
		if f.name != "" {
			t.Errorf("chat event has a name: %q", f.name)
		}
		c := decode[chatChunk](t, f.data)
		if id == "" {
			id = c.ID
		}
		if c.ID != id || c.Object != "chat.completion.chunk" || c.Created == 0 || c.Choices == nil {
			t.Errorf("chunk is incomplete: %s", f.data)
		}
		r.chunks++
		switch {
		case string(c.Usage) == "null":
			r.nulls++
		case c.Usage != nil:
			r.usages = append(r.usages, decode[chatUsage](t, string(c.Usage)))
		}
		for _, choice := range c.Choices {
			r.take(t, choice)
		}
	}
	return r
}

func (r *chatReader) take(t *testing.T, c chunkChoice) {
	t.Helper()
	var delta struct {
		Role      string         `json:"role"`
		Content   string         `json:"content"`
		Refusal   string         `json:"refusal"`
		ToolCalls []chatToolCall `json:"tool_calls"`
	}
	if err := json.Unmarshal(c.Delta, &delta); err != nil {
		t.Fatal(err)
	}
	_, begun := r.texts[c.Index]
	if begun == (delta.Role != "") {
		t.Errorf("role must come exactly once and first, choice %d", c.Index)
	}
	if r.finish[c.Index] != "" {
		t.Errorf("choice %d continues after its end", c.Index)
	}
	r.texts[c.Index] += delta.Content + delta.Refusal
	for _, call := range delta.ToolCalls {
		if call.Index == nil || (r.toolName == "") != (call.ID != "" && call.Type == "function") {
			t.Errorf("tool call piece is wrong: %+v", call)
		}
		r.toolName += call.Function.Name
		r.toolArgs += call.Function.Arguments
	}
	if c.FinishReason != nil {
		r.finish[c.Index] = *c.FinishReason
	}
}

const fiveWords = "amber birch cedar delta ember"

func TestChatAnswersWithJSON(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	status, body := b.ask(t, Chat, map[string]string{"max_tokens": "5", "n": "2"})
	if status != http.StatusOK {
		t.Fatalf("answered %d %s", status, body)
	}
	got := decode[chatCompletion](t, body)
	text := fiveWords
	want := chatCompletion{
		ID: "chatcmpl-t000001", Object: "chat.completion", Created: got.Created, Model: "sim", ServiceTier: "default",
		Choices: []chatChoice{
			{Index: 0, FinishReason: "length", Message: chatMessage{Role: "assistant", Content: &text, Annotations: []string{}}},
			{Index: 1, FinishReason: "length", Message: chatMessage{Role: "assistant", Content: &text, Annotations: []string{}}},
		},
		Usage: &chatUsage{PromptTokens: 8, CompletionTokens: 10, TotalTokens: 18},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("completion (-want +got):\n%s", diff)
	}
}

func TestChatStreamEqualsPlan(t *testing.T) {
	t.Parallel()
	final := chatUsage{PromptTokens: 8, CompletionTokens: 5, TotalTokens: 13}
	asked := `{"include_usage":true}`
	tests := []struct {
		name    string
		change  map[string]string
		options string
		usages  []chatUsage
		nulls   int
		chunks  int
	}{
		{"not asked for usage", streamed("out=5"), "", nil, 0, 7},
		{"asked for usage", streamed("out=5"), asked, []chatUsage{final}, 7, 8},
		{"asked and none given", streamed("out=5,nousage"), asked, nil, 0, 7},
		{"usage on the last choice, unasked", streamed("out=5,usage_on_last"), "", []chatUsage{final}, 0, 7},
		{"usage only in x_groq, unasked", streamed("out=5,x_groq"), "", nil, 0, 7},
		{"usage in x_groq and beside it", streamed("out=5,x_groq"), asked, []chatUsage{final}, 0, 7},
		{"several words an event", streamed("out=5,per_event=3"), "", nil, 0, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			if tt.options != "" {
				tt.change["stream_options"] = tt.options
			}
			got := readChat(t, b.stream(t, Chat, tt.change))
			if got.texts[0] != fiveWords || got.finish[0] != "stop" {
				t.Errorf("text %q, ended %q", got.texts[0], got.finish[0])
			}
			if diff := cmp.Diff(tt.usages, got.usages); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
			if got.nulls != tt.nulls || got.chunks != tt.chunks {
				t.Errorf("%d null usages in %d chunks; want %d in %d", got.nulls, got.chunks, tt.nulls, tt.chunks)
			}
		})
	}
}

func TestChatUsageOnEveryChunk(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	got := readChat(t, b.stream(t, Chat, streamed("out=3,usage_every_chunk")))
	var totals []int64
	for _, u := range got.usages {
		totals = append(totals, u.TotalTokens)
	}
	if diff := cmp.Diff([]int64{8, 9, 10, 11, 11, 11}, totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
}

func TestChatUsageInChoice(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	frames := b.stream(t, Chat, streamed("out=3,usage_in_choice,cached=2"))
	finish := decode[chatChunk](t, frames[len(frames)-2].data)
	want := `{"cached_tokens":2,"completion_tokens":3,"prompt_tokens":8,"total_tokens":11}`
	if got := string(finish.Choices[0].Usage); got != want {
		t.Errorf("usage in choice %s; want %s", got, want)
	}
	if got := b.last(t).Counts.Output; got != 3 {
		t.Errorf("journal has %d output tokens; want 3", got)
	}
}

func TestChatStreamAlternatesBetweenChoices(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	change := streamed("out=5")
	change["n"] = "3"
	got := readChat(t, b.stream(t, Chat, change))
	want := map[int64]string{0: fiveWords, 1: fiveWords, 2: fiveWords}
	if diff := cmp.Diff(want, got.texts); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
	if e := b.last(t); e.Delivered != 15 || e.EventsSent != 3+15+3+1 {
		t.Errorf("journal: delivered %d in %d events; want 15 in 22", e.Delivered, e.EventsSent)
	}
}

const chatTools = `[{"type":"function","function":{"name":"first"}},
	{"type":"function","function":{"name":"second","parameters":{"type":"object","required":["city","days"],"properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}}]`

func TestChatCallsForcedTool(t *testing.T) {
	t.Parallel()
	tests := []struct{ choice, name, arguments string }{
		{`"required"`, "first", `{}`},
		{`{"type":"function","function":{"name":"second"}}`, "second", `{"city":"amber","days":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			change := map[string]string{"tools": chatTools, "tool_choice": tt.choice}
			_, body := b.ask(t, Chat, change)
			choice := decode[chatCompletion](t, body).Choices[0]
			call := choice.Message.ToolCalls[0].Function
			if choice.FinishReason != "tool_calls" || call.Name != tt.name || call.Arguments != tt.arguments || choice.Message.Content != nil {
				t.Errorf("JSON answer %s; want a call of %s(%s)", body, tt.name, tt.arguments)
			}
			change["stream"] = "true"
			got := readChat(t, b.stream(t, Chat, change))
			if got.toolName != tt.name || got.toolArgs != tt.arguments || got.finish[0] != "tool_calls" {
				t.Errorf("stream calls %s(%s), ends %q", got.toolName, got.toolArgs, got.finish[0])
			}
		})
	}
}

func TestChatVariants(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, list, contains string }{
		{"refusal", "out=2,refuse", `"refusal":"amber birch"`},
		{"filter", "out=2,filter", `"finish_reason":"content_filter"`},
		{"reasoning outside", "out=2,reasoning=5,reasoning_outside", `"completion_tokens":2,"total_tokens":15`},
		{"reasoning shown", "out=2,reasoning=2,reasoning_content", `"reasoning_content":"amber birch"`},
		{"other model", "model=dated-model", `"model":"dated-model"`},
		{"other service tier", "tier=flex", `"service_tier":"flex"`},
		{"padded words", "out=1,word_bytes=9", `"content":"amberambe"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			if _, body := b.ask(t, Chat, model(tt.list)); !strings.Contains(body, tt.contains) {
				t.Errorf("the answer %s does not contain %s", body, tt.contains)
			}
		})
	}
}

func TestChatStreamVariants(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, list string
		frame      int // negative: from the end
		contains   string
	}{
		{"azure", "azure_first", 0, `"choices":[]`},
		{"groq", "x_groq,out=2", -2, `"x_groq":{"id":"req_chatcmpl-t000001","usage":{"prompt_tokens":8,"completion_tokens":2`},
		{"error", "error=2,code=boom,message=no%20more", -1, `{"error":{"message":"no more","type":"server_error","param":null,"code":"boom"}}`},
		{"groq error", "error=2,error_style=groq,message=stop", -1, `"error":"stop"`},
		{"error beside a choice", "error=2,error_style=choice", -1, `"finish_reason":"error"`},
		{"reasoning shown", "reasoning=1,reasoning_content", 1, `{"reasoning_content":"amber"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			frames := b.stream(t, Chat, streamed(tt.list))
			at := tt.frame
			if at < 0 {
				at += len(frames)
			}
			if !strings.Contains(frames[at].data, tt.contains) {
				t.Errorf("frame %d of %d is %s; want %s in it", at, len(frames), frames[at].data, tt.contains)
			}
		})
	}
}

func TestChatObfuscationCanBeOff(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	for _, obscure := range []bool{true, false} {
		change := streamed("")
		change["stream_options"] = fmt.Sprintf(`{"include_obfuscation":%t}`, obscure)
		if got := strings.Contains(b.stream(t, Chat, change)[1].data, "obfuscation"); got != obscure {
			t.Errorf("obfuscation is %t; want %t", got, obscure)
		}
	}
}

// An answer is in the service tier that was asked for, unless a directive downgrades it.
func TestAnswersNameTheirServiceTier(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		format             Format
		list, member, asks string
		want               string
	}{
		{Chat, "", "service_tier", "auto", `"service_tier":"default"`},
		{Chat, "", "service_tier", "priority", `"service_tier":"priority"`},
		{Chat, "tier=default", "service_tier", "priority", `"service_tier":"default"`},
		{Responses, "", "service_tier", "auto", `"service_tier":"default"`},
		{Responses, "", "service_tier", "flex", `"service_tier":"flex"`},
		{Responses, "tier=default", "service_tier", "flex", `"service_tier":"default"`},
		{Messages, "", "service_tier", "auto", `"service_tier":"standard"`},
		{Messages, "tier=priority", "service_tier", "auto", `"service_tier":"priority"`},
		{Messages, "", "speed", "fast", `"speed":"fast"`},
		{Messages, "tier=standard", "speed", "fast", `"speed":"standard"`},
	} {
		b := setup(t, Config{})
		list := tt.list
		if list == "" {
			list = "out=1"
		}
		change := model(list)
		change[tt.member] = `"` + tt.asks + `"`
		if _, body := b.ask(t, tt.format, change); !strings.Contains(body, tt.want) {
			t.Errorf("%s %s %q: %s does not contain %s", tt.format, tt.list, tt.asks, body, tt.want)
		}
	}
}
