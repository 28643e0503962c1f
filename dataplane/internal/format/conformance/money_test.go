package conformance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
)

// Members that disclose the provider's charge to the gateway are removed from the answers and streams of every format,
// and every other byte stays. « and » enclose these members in the test data.
func TestProviderCostIsRemoved(t *testing.T) {
	t.Parallel()
	const chunk = `{"id":"c","model":"my-model","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]`
	const chat = `{"id":"c","model":"my-model","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]`
	const response = `"response":{"id":"r","model":"my-model","status":"completed","output":[{"type":"message"}],`
	tests := []struct {
		name   string
		format catalogkv.Format
		text   string
	}{
		{"chat, from a reseller", catalogkv.Chat, chat + `, "usage" : { "prompt_tokens": 4, "completion_tokens": 1.0«, "cost": 0.00011,
			"is_byok":false,"cost_details":{"upstream_inference_cost":null,"tokens":3}», "total_tokens":5 } }`},
		{"chat, first and only member", catalogkv.Chat, chat + `,"usage":{«"cost":{"total_cost":1},»"prompt_tokens":4,"completion_tokens_details":{«"cost":1»}}}`},
		{"chat, in ticks and next to the usage", catalogkv.Chat, chat + `,"usage":{"prompt_tokens":4«,"cost_in_usd_ticks":37756000»}«,"response_cost":1.5e-7»,"service_tier":"default"}`},
		{"chat, in a choice", catalogkv.Chat, `{"id":"c","model":"my-model","choices":[{"usage":{"prompt_tokens":4«,"estimated_cost":1»},"message":{"content":"x"},"finish_reason":"stop"}]}`},
		{"chat, a cost member of the message stays", catalogkv.Chat, `{"id":"c","model":"my-model","choices":[{"message":{"content":"x","cost":1},"finish_reason":"stop"}],"usage":{"prompt_tokens":4}}`},
		{"chat stream", catalogkv.Chat, "data: " + chunk + `,"usage":{"prompt_tokens":4«,"cost":1e-3,"costDetails":{"a":[1]}»,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"},
		{"chat stream, in x_groq and at the top", catalogkv.Chat, "data: " + chunk + `,"x_groq":{"id":"g","usage":{"prompt_tokens":4«,"prompt_cost":1»}}«,"cost":0.1»}` + "\n\ndata: [DONE]\n\n"},
		{"responses", catalogkv.Responses, `{"id":"r","model":"my-model","status":"completed","output":[{"type":"message"}],"usage":{"input_tokens":1«,"cost":2»,"output_tokens":1«,"cost_details":{}»},"tool_usage":{"web_search":{"num_requests":1«,"price":0.01»}}}`},
		{"responses stream", catalogkv.Responses, "event: response.completed\ndata: {\"type\":\"response.completed\"," + response + `"usage":{"input_tokens":1,"output_tokens":1«,"cost":2»}}}` + "\n\n"},
		{"messages", catalogkv.Messages, `{"id":"m","model":"my-model","content":[{"type":"text","text":"x"}],"usage":{«"cost":1,»"input_tokens":4,"output_tokens":1,"iterations":[{"type":"message"«,"cost":1»}]}}`},
		{"messages stream", catalogkv.Messages, "event: message_start\ndata: " + `{"type":"message_start","message":{"id":"m","model":"my-model","content":[],"usage":{"input_tokens":4«,"cost":1»}}}` + "\n\n" +
			"event: message_delta\ndata: " + `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4«,"cost":1,"cost_details":{"a":1}»}}` + "\n\n" +
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
		{"images", catalogkv.Images, `{"created":1,"data":[{"url":"https://x/1.png"}],"usage":{"input_tokens":1«,"cost":0.04»,"output_tokens":1}«,"cost":0.04»}`},
		{"videos", catalogkv.Videos, `{"id":"video_mine","model":"my-model","status":"completed","seconds":"4"«,"cost":0.4,"usage":{"seconds":4,"total_cost_usd":1}»}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var want strings.Builder
			for i, part := range strings.FieldsFunc(tt.text, func(r rune) bool { return r == '«' || r == '»' }) {
				if i%2 == 0 {
					want.WriteString(part)
				}
			}
			a := newAnswer(t, tt.format, `,"stream":false,"stream_options":{"include_usage":true}`)
			defer a.Release()
			body := []byte(strings.NewReplacer("«", "", "»", "").Replace(tt.text))
			var got result
			if strings.Contains(tt.name, "stream") {
				got = answerStream(a, body, oneRead)
			} else {
				got = answerJSON(a, body)
			}
			if diff := cmp.Diff(want.String(), string(got.out)); diff != "" || got.Failed {
				t.Errorf("failed %v, want -, got +:\n%s", got.Failed, diff)
			}
		})
	}
}
