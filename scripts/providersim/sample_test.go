package providersim

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"modelgateway/shared/platform/testkit/wiresample"
)

// memberPaths adds the paths of all members of a JSON text to into, without the
// positions in arrays.
func memberPaths(t *testing.T, text string, into map[string]bool) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				into[prefix+"."+name] = true
				walk(prefix+"."+name, inner)
			}
		case []any:
			for _, inner := range v {
				walk(prefix+"[]", inner)
			}
		}
	}
	kind := ""
	if m, ok := v.(map[string]any); ok {
		if s, ok := m["type"].(string); ok {
			kind = s
		}
	}
	walk(kind, v)
}

// compareMembers fails the test for each member that only one of the two has.
func compareMembers(t *testing.T, want, got map[string]bool, except ...string) {
	t.Helper()
	for path := range want {
		if !got[path] && !slices.Contains(except, path) {
			t.Errorf("the sample has the member %s, the answer has not", path)
		}
	}
	for path := range got {
		if !want[path] && !slices.Contains(except, path) {
			t.Errorf("the answer has the member %s, the sample has not", path)
		}
	}
}

func TestJSONHasTheMembersOfTheSamples(t *testing.T) {
	t.Parallel()
	rich := func(extra map[string]string) map[string]string {
		m := model("reasoning=3,cached=2,cache_write=1")
		maps.Copy(m, extra)
		return m
	}
	messagesTools := map[string]string{"tools": `[{"name":"get_weather","input_schema":{"required":["city"]}}]`, "tool_choice": `{"type":"any"}`}
	tests := []struct {
		sample string
		format Format
		change map[string]string
		except []string
	}{
		{"chat/response.json", Chat, rich(nil), nil},
		{"chat/response-tool-calls.json", Chat, map[string]string{"tools": chatTools, "tool_choice": `"required"`}, []string{".usage.prompt_tokens_details.cache_write_tokens"}},
		{"chat/error-unsupported-parameter.json", Chat, map[string]string{"foo": "1"}, nil},
		{"responses/response.json", Responses, rich(map[string]string{"input": `"hello there"`, "include": `["reasoning.encrypted_content"]`}), nil},
		{"responses/response-tool-call.json", Responses, map[string]string{"tools": `[{"type":"function","name":"a"}]`, "tool_choice": `"required"`}, []string{".tools[].name", ".tools[].type"}},
		{"responses/response-incomplete.json", Responses, map[string]string{"model": `"m@out=20"`, "max_output_tokens": "16"}, nil},
		{"responses/error-unsupported-parameter.json", Responses, map[string]string{"background": "true"}, nil},
		{"messages/response.json", Messages, rich(nil), nil},
		// The sample has a text before the tool call, and its usage leaves optional members out.
		{"messages/response-tool-use.json", Messages, messagesTools, []string{"message.content[].text", "message.usage.output_tokens_details", "message.usage.output_tokens_details.thinking_tokens", "message.usage.server_tool_use"}},
		{"messages/response-refusal.json", Messages, model("refuse"), []string{"message.usage.output_tokens_details", "message.usage.output_tokens_details.thinking_tokens", "message.usage.server_tool_use"}},
		{"messages/error-not-found.json", Messages, model("status=404"), nil},
		{"images/response-b64.json", Images, nil, nil},
		{"images/response-url.json", Images, map[string]string{"response_format": `"url"`}, nil},
		{"images/error.json", Images, map[string]string{"foo": "1"}, nil},
		{"videos/queued.json", Videos, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.sample, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			want, got := map[string]bool{}, map[string]bool{}
			memberPaths(t, string(wiresample.Read(t, tt.sample)), want)
			_, body := b.ask(t, tt.format, tt.change)
			memberPaths(t, body, got)
			// The argument of a tool is not a member of the format.
			delete(want, "message.content[].input.city")
			delete(got, "message.content[].input.city")
			compareMembers(t, want, got, tt.except...)
		})
	}
}

func TestStreamsHaveTheMembersOfTheSamples(t *testing.T) {
	t.Parallel()
	tests := []struct {
		sample string
		format Format
		change map[string]string
		except []string
	}{
		{"chat/stream.sse", Chat, map[string]string{"stream_options": `{"include_usage":true}`}, nil},
		{"chat/stream-without-usage.sse", Chat, nil, []string{".usage"}},
		{
			"chat/stream-tool-calls.sse", Chat,
			map[string]string{"stream_options": `{"include_usage":true}`, "tools": chatTools, "tool_choice": `"required"`},
			[]string{".usage.prompt_tokens_details.cache_write_tokens"},
		},
		{"chat/stream-error-mid.sse", Chat, map[string]string{"model": `"m@error=2"`, "stream_options": `{"include_usage":true}`}, nil},
		{"chat/variant-usage-in-choice.sse", Chat, model("usage_in_choice"), []string{".choices[].delta.refusal", ".obfuscation"}},
		{"responses/stream.sse", Responses, map[string]string{"model": `"m@reasoning=2,cached=1,cache_write=1"`, "input": `"hello there"`, "include": `["reasoning.encrypted_content"]`}, nil},
		{"responses/stream-error-mid.sse", Responses, model("error=5"), nil},
		{"responses/stream-error-flat.sse", Responses, model("error=2,error_style=flat"), nil},
		{"responses/variant-keepalive.sse", Responses, model("keepalive"), nil},
		{"messages/stream.sse", Messages, model("reasoning=2,cached=1,cache_write=1"), nil},
		{"messages/stream-error-mid.sse", Messages, model("error=4"), nil},
		{"images/stream.sse", Images, map[string]string{"partial_images": "1"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.sample, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			want, got := map[string]bool{}, map[string]bool{}
			frames, _, err := readStream(t, strings.NewReader(strings.TrimSpace(string(wiresample.Read(t, tt.sample)))+"\n\n"))
			if err != nil {
				t.Fatal(err)
			}
			change := map[string]string{"stream": "true"}
			maps.Copy(change, tt.change)
			collect := func(frames []frame, into map[string]bool) {
				for _, f := range frames {
					if f.data != "[DONE]" {
						memberPaths(t, f.data, into)
					}
				}
			}
			collect(frames, want)
			collect(b.stream(t, tt.format, change), got)
			delete(want, "ping.type") // not in every sample
			delete(got, "ping.type")
			compareMembers(t, want, got, tt.except...)
		})
	}
}

func TestVideosHaveTheMembersOfTheSamples(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	get := func(path string) string {
		_, body := b.call(t, http.MethodGet, path, "")
		return body
	}
	good, bad := b.create(t, "").ID, b.create(t, "polls=0,fail").ID
	for _, step := range []struct{ sample, path string }{
		{"in_progress.json", "/v1/videos/" + good},
		{"completed.json", "/v1/videos/" + good},
		{"failed.json", "/v1/videos/" + bad},
		{"error-not-found.json", "/v1/videos/none"},
	} {
		want, got := map[string]bool{}, map[string]bool{}
		memberPaths(t, string(wiresample.Read(t, "videos/"+step.sample)), want)
		memberPaths(t, get(step.path), got)
		compareMembers(t, want, got)
	}
	b.call(t, http.MethodDelete, "/v1/videos/"+bad, "")
	want, got := map[string]bool{}, map[string]bool{}
	memberPaths(t, string(wiresample.Read(t, "videos/list.json")), want)
	memberPaths(t, get("/v1/videos"), got)
	compareMembers(t, want, got)
}
