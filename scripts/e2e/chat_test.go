package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// chatBody returns a chat request with one message.
func chatBody(model, text string, stream bool) map[string]any {
	body := map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": text}}}
	if stream {
		body["stream"] = true
	}
	return body
}

// completion is the part of a chat completion, or of a chunk, that tests read.
type completion struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Model   string `json:"model"`
	Choices []struct {
		Message      struct{ Content string } `json:"message"`
		Delta        struct{ Content string } `json:"delta"`
		FinishReason *string                  `json:"finish_reason"`
	} `json:"choices"`
	Usage json.RawMessage `json:"usage"`
}

// streamedText returns the text of a chat stream and checks that it ends properly.
func streamedText(t *testing.T, answer *rig.Answer) string {
	t.Helper()
	events := answer.Events()
	if len(events) == 0 || events[len(events)-1].Data != "[DONE]" {
		t.Fatalf("the stream does not end with [DONE]: %s", answer)
	}
	var text strings.Builder
	for _, e := range events[:len(events)-1] {
		var chunk completion
		if err := json.Unmarshal([]byte(e.Data), &chunk); err != nil {
			t.Fatalf("chunk %s: %v", e.Data, err)
		}
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
	return text.String()
}

func TestChatIsAnsweredAndBilledThroughEveryProxy(t *testing.T) {
	t.Parallel()
	r := rig.Get(t)
	list := prices{"input": "1.00", "cached_input": "0.10", "output": "2.50"}
	model := r.Model(t, rig.Model{Price: list.document(), Directives: "out=33,cached=3"})
	account := r.Account(t, rig.AccountSpec{Credit: "10"})
	text := ""
	for proxy := range r.Proxies {
		for _, stream := range []bool{false, true} {
			answer := r.Do(t, rig.Request{
				Proxy: proxy, Path: "/v1/chat/completions", Key: account.Key, Body: chatBody(model, "How far is the moon?", stream),
			})
			if answer.Status != 200 {
				t.Fatalf("proxy %d, stream %t: got %s", proxy, stream, answer)
			}
			var got string
			if stream {
				got = streamedText(t, answer)
			} else {
				var whole completion
				answer.Decode(t, &whole)
				got = whole.Choices[0].Message.Content
				if whole.Model != model {
					t.Errorf("the answer names the model %q; want %q", whole.Model, model)
				}
			}
			if text == "" {
				text = got
			}
			if got == "" || got != text {
				t.Errorf("proxy %d, stream %t: got the text %q; want %q", proxy, stream, got, text)
			}
			usage := r.AwaitUsage(t, answer.RequestID())
			entry := journalEntry(t, r, model, *usage.ProviderRequestID)
			checkReceipt(t, usage, list, *entry.Counts)
			if usage.Estimated || usage.Rule != "reported" {
				t.Errorf("the usage is %s, estimated %t; want it as reported", usage.Rule, usage.Estimated)
			}
		}
	}
	account.AwaitIdle(t)
	account.AwaitUsage(t, 2*len(r.Proxies))
	r.CheckLedger(t)
}
