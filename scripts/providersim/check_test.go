package providersim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The error contains the name of the parameter if the envelope of the format has it.
func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("x", 65) + `"`
	tests := []struct {
		format Format
		change map[string]string
		want   string // code/param; empty: accepted
	}{
		{Chat, map[string]string{"foo": "1"}, "unknown_parameter/foo"},
		{Chat, map[string]string{"input": `"hi"`}, "unknown_parameter/input"},
		{Chat, map[string]string{"messages": ""}, "missing_required_parameter/messages"},
		{Chat, map[string]string{"model": ""}, "missing_required_parameter/model"},
		{Chat, map[string]string{"model": "7"}, "invalid_type/model"},
		{Chat, map[string]string{"messages": "[]"}, "empty_array/messages"},
		{Chat, map[string]string{"messages": `["hi"]`}, "invalid_type/messages"},
		{Chat, map[string]string{"messages": `[{"role":"robot","content":"x"}]`}, "invalid_value/messages[0].role"},
		{Chat, map[string]string{"messages": `[{"role":"user"}]`}, "invalid_type/messages[0].content"},
		{Chat, map[string]string{"messages": `[{"role":"user","content":null}]`}, "invalid_type/messages[0].content"},
		{Chat, map[string]string{"messages": `[{"role":"user","content":7}]`}, "invalid_type/messages[0].content"},
		{Chat, map[string]string{"messages": `[{"role":"user","content":[{"type":"smell"}]}]`}, "invalid_value/messages[0].content[0].type"},
		{Chat, map[string]string{"messages": `[{"role":"user","content":[{"type":"text"}]}]`}, "missing_required_parameter/messages[0].content[0].text"},
		{Chat, map[string]string{"messages": `[{"role":"tool","content":"x"}]`}, "missing_required_parameter/messages[0].tool_call_id"},
		{Chat, map[string]string{"messages": `[{"role":"assistant","content":null,"tool_calls":[]}]`}, ""},
		{Chat, map[string]string{"temperature": `"hot"`}, "invalid_type/temperature"},
		{Chat, map[string]string{"temperature": "2.5"}, "integer_above_max_value/temperature"},
		{Chat, map[string]string{"temperature": "1"}, ""},
		{Chat, map[string]string{"temperature": "null"}, ""},
		{Chat, map[string]string{"user": "null"}, "invalid_type/user"},
		{Chat, map[string]string{"tools": "null"}, "invalid_type/tools"},
		{Chat, map[string]string{"max_tokens": "1.5"}, "invalid_type/max_tokens"},
		{Chat, map[string]string{"max_tokens": "1e2"}, "invalid_type/max_tokens"},
		{Chat, map[string]string{"max_tokens": "0"}, "integer_below_min_value/max_tokens"},
		{Chat, map[string]string{"max_tokens": "5", "max_completion_tokens": "6"}, "invalid_parameter_combination/max_tokens"},
		{Chat, map[string]string{"n": "129"}, "integer_above_max_value/n"},
		{Chat, map[string]string{"stream": `"yes"`}, "invalid_type/stream"},
		{Chat, map[string]string{"stream_options": `{}`}, "invalid_value/stream_options"},
		{Chat, map[string]string{"stream": "true", "stream_options": `{"include_usage":"yes"}`}, "invalid_type/stream_options"},
		{Chat, map[string]string{"stop": `["a","b","c","d","e"]`}, "array_above_max_length/stop"},
		{Chat, map[string]string{"safety_identifier": long}, "string_above_max_length/safety_identifier"},
		{Chat, map[string]string{"service_tier": `"free"`}, "invalid_value/service_tier"},
		{Chat, map[string]string{"metadata": `{"a":"b"}`}, "invalid_value/metadata"},
		{Chat, map[string]string{"metadata": `{"a":1}`, "store": "true"}, "invalid_type/metadata"},
		{Chat, map[string]string{"metadata": `{"a":"b"}`, "store": "true"}, ""},
		{Chat, map[string]string{"top_logprobs": "3"}, "invalid_value/top_logprobs"},
		{Chat, map[string]string{"tools": `[{"type":"web_search"}]`}, "invalid_value/tools[0].type"},
		{Chat, map[string]string{"tools": `[{"type":"function","function":{"name":"a b"}}]`}, "invalid_value/tools[0].name"},
		{Chat, map[string]string{"tool_choice": `"required"`}, "invalid_value/tool_choice"},
		{Chat, map[string]string{"model": `"sim@bogus"`}, "unknown_directive/model"},

		{Responses, map[string]string{"messages": "[]"}, "unknown_parameter/messages"},
		{Responses, map[string]string{"input": ""}, "missing_required_parameter/input"},
		{Responses, map[string]string{"input": "{}"}, "invalid_type/input"},
		{Responses, map[string]string{"input": `[{"content":"x"}]`}, "invalid_value/input[0]"},
		{Responses, map[string]string{"input": `[{"role":"user"}]`}, "missing_required_parameter/input[0].content"},
		{Responses, map[string]string{"input": `[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"function_call_output","call_id":"c","output":"o"}]`}, ""},
		{Responses, map[string]string{"max_output_tokens": "15"}, "integer_below_min_value/max_output_tokens"},
		{Responses, map[string]string{"tools": `[{"name":"x"}]`}, "missing_required_parameter/tools[0].type"},
		{Responses, map[string]string{"stream_options": `{"include_obfuscation":false}`, "stream": "true"}, ""},

		{Images, map[string]string{"prompt": ""}, "missing_required_parameter/prompt"},
		{Images, map[string]string{"n": "11"}, "integer_above_max_value/n"},
		{Images, map[string]string{"size": `"big"`}, "invalid_value/size"},
		{Images, map[string]string{"size": `"1024x1024"`, "quality": `"hd"`}, ""},
		{Images, map[string]string{"partial_images": "2"}, "invalid_value/partial_images"},
		{Images, map[string]string{"seed": "2"}, "unknown_parameter/seed"},

		{Videos, map[string]string{"seconds": "8"}, "invalid_type/seconds"},
		{Videos, map[string]string{"seconds": `"0"`}, "invalid_value/seconds"},
		{Videos, map[string]string{"input_reference": `{}`}, "invalid_value/input_reference"},
		{Videos, map[string]string{"n": "1"}, "unknown_parameter/n"},
		{Videos, map[string]string{"seconds": `"12"`, "size": `"1280x720"`, "input_reference": `{"image_url":"data:,x"}`}, ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %v", tt.format, tt.change), func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			status, body := b.ask(t, tt.format, tt.change)
			if tt.want == "" {
				if status != http.StatusOK {
					t.Errorf("answered %d %s; want 200", status, body)
				}
				return
			}
			if got := errorOf(t, tt.format, body); status != http.StatusBadRequest || got != "invalid_request_error/"+tt.want {
				t.Errorf("answered %d %s; want 400 %s", status, got, tt.want)
			}
		})
	}
}

func TestInvalidMessagesRequestsAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		change map[string]string
		want   string // start of the message; empty: accepted
	}{
		{map[string]string{"foo": "1"}, "foo: Extra inputs"},
		{map[string]string{"max_tokens": ""}, "max_tokens: Field required"},
		{map[string]string{"max_tokens": "null"}, "max_tokens: expected integer, got null"},
		{map[string]string{"max_tokens": "-1"}, "max_tokens: expected at least 0"},
		{map[string]string{"temperature": "1.5"}, "temperature: expected at most 1"},
		{map[string]string{"messages": `[{"role":"tool","content":"x"}]`}, "messages.0.role"},
		{map[string]string{"messages": `[{"role":"user"}]`}, "messages.0.content"},
		{map[string]string{"messages": `[{"role":"user","content":[{}]}]`}, "messages.0.content[0].type"},
		{map[string]string{"thinking": `{"type":"sometimes"}`}, "thinking: type"},
		{map[string]string{"thinking": `{"type":"enabled"}`}, "thinking.budget_tokens: Field required"},
		{map[string]string{"thinking": `{"type":"enabled","budget_tokens":2000}`}, "thinking.budget_tokens: must"},
		{map[string]string{"thinking": `{"type":"enabled","budget_tokens":2000}`, "max_tokens": "4000"}, ""},
		{map[string]string{"tool_choice": `{"type":"any"}`}, "tool_choice"},
		{map[string]string{"system": "7"}, "system: expected string or array, got integer"},
		{map[string]string{"system": `[{"type":"text","text":"x"}]`, "stop_sequences": `["a"]`, "metadata": `{"user_id":"u"}`}, ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.change), func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			status, body := b.ask(t, Messages, tt.change)
			if tt.want == "" {
				if status != http.StatusOK {
					t.Errorf("answered %d %s; want 200", status, body)
				}
				return
			}
			got := decode[messagesError](t, body).Error
			if status != http.StatusBadRequest || got.Type != "invalid_request_error" || !strings.HasPrefix(got.Message, tt.want) {
				t.Errorf("answered %d %+v; want 400 %s", status, got, tt.want)
			}
		})
	}
}

func TestBodiesThatAreNotJSONAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{MaxBodyBytes: 1000})
	tests := []struct {
		name, contentType, body string
		want                    int
	}{
		{"broken", "application/json", `{"model":`, 400},
		{"array", "application/json", `[]`, 400},
		{"doubled member", "application/json", `{"model":"a","model":"b"}`, 400},
		{"other type", "text/plain", `{}`, 415},
		{"no type", "", `{}`, 415},
		{"too large", "application/json", strings.Repeat(" ", 1001), 413},
		{"charset is fine", "application/json; charset=utf-8", bodyOf(Chat, nil), 200},
	}
	for _, tt := range tests {
		r := b.request(t, http.MethodPost, paths[Chat], tt.body)
		r.Header.Set("Content-Type", tt.contentType)
		if got := do(t, r).StatusCode; got != tt.want {
			t.Errorf("%s: status %d; want %d", tt.name, got, tt.want)
		}
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		keys        []string
		bearer, key string
		want        int
	}{
		{"none", nil, "", "", 401},
		{"any bearer", nil, "Bearer x", "", 200},
		{"any api key", nil, "", "x", 200},
		{"another scheme", []string{"x"}, "Basic x", "", 401},
		{"listed", []string{"a", "x"}, "Bearer x", "", 200},
		{"not listed", []string{"a"}, "Bearer x", "", 401},
		{"both agree", []string{"x"}, "Bearer x", "x", 200},
		{"both differ", nil, "Bearer x", "y", 401},
	}
	for _, tt := range tests {
		for f, want := range map[Format]string{Chat: "invalid_request_error/invalid_api_key/", Messages: "authentication_error"} {
			t.Run(fmt.Sprintf("%s %s", f, tt.name), func(t *testing.T) {
				t.Parallel()
				b := setup(t, Config{Keys: tt.keys})
				r := b.request(t, http.MethodPost, paths[f], bodyOf(f, nil))
				r.Header.Del("Authorization")
				if tt.bearer != "" {
					r.Header.Set("Authorization", tt.bearer)
				}
				if tt.key != "" {
					r.Header.Set("X-Api-Key", tt.key)
				}
				resp := do(t, r)
				if resp.StatusCode != tt.want {
					t.Fatalf("status %d; want %d", resp.StatusCode, tt.want)
				}
				if tt.want == http.StatusUnauthorized {
					if got := errorOf(t, f, readAll(t, resp)); got != want {
						t.Errorf("error %s; want %s", got, want)
					}
				}
			})
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	tests := []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, "/v1/embeddings", 404},
		{http.MethodPost, "/v1/messages/count_tokens", 404},
		{http.MethodGet, "/v1/chat/completions", 405},
		{http.MethodDelete, "/v1/videos", 405},
		{http.MethodPut, "/v1/videos/x", 405},
		{http.MethodGet, "/v1/videos/x/y/content", 404},
		{http.MethodGet, "/livez", 200},
		{http.MethodGet, "/_sim/nothing", 404},
	}
	for _, tt := range tests {
		if status, body := b.call(t, tt.method, tt.path, ""); status != tt.want {
			t.Errorf("%s %s answered %d %s; want %d", tt.method, tt.path, status, body, tt.want)
		}
	}
}
