package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// formats holds, for every format of the suite, a body that the gateway and a provider
// accept.
var formats = map[catalogkv.Format]string{
	catalogkv.Chat:      `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
	catalogkv.Responses: `{"model":"m","input":"hi"}`,
	catalogkv.Messages:  `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
	catalogkv.Images:    `{"model":"m","prompt":"hi"}`,
	catalogkv.Videos:    `{"model":"m","prompt":"hi"}`,
}

// values holds accepted values of the parameters whose type alone does not give one.
var values = map[string]string{
	"messages":                           `[{"role":"user","content":"hi"}]`,
	"metadata":                           `{"user_id":"me"}`,
	"stream":                             `false`,
	"stream_options":                     `{"include_obfuscation":false}`,
	"stream_options.include_usage":       `true`,
	"stream_options.include_obfuscation": `true`,
	"input":                              `"hi"`,
	"include":                            `["reasoning.encrypted_content"]`,
	"input_reference":                    `{"image_url":"https://pictures.example/1.png"}`,
	"tool_choice":                        `"auto"`,
	"context_management":                 `{"edits":[]}`,
	"frame_count":                        `2`,
	"seconds":                            `"8"`,
	"system":                             `"be brief"`,
	"cache_control.ttl":                  `"5m"`,
	"prompt_cache_options.ttl":           `"30m"`,
}

// numbers lists the parameters whose values must be numbers although their rows name no type.
var numbers = []string{"n", "max_tokens", "max_completion_tokens", "max_output_tokens"}

func value(row format.Param) string {
	if v, ok := values[row.Name]; ok {
		return v
	}
	if slices.Contains(numbers, row.Name) {
		return "7"
	}
	switch {
	case row.Types&format.String != 0 || row.Types == 0:
		return `"some text"`
	case row.Types&format.Array != 0:
		return `[]`
	case row.Types&format.Object != 0:
		return `{}`
	case row.Types&format.Integer != 0:
		return `3`
	}
	return `true`
}

// with returns the body with one member set.
func with(body, name, raw string) string {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		panic(err)
	}
	if parent, child, ok := strings.Cut(name, "."); ok {
		name, raw = parent, fmt.Sprintf("{%q:%s}", child, raw)
	}
	members[name] = json.RawMessage(raw)
	out, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// without returns the body without a member.
func without(body, name string) string {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		panic(err)
	}
	delete(members, name)
	out, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// strict returns the policy of a format that refuses offers of tools instead of leaving them out, with other overrides.
func strict(f catalogkv.Format, overrides ...catalogkv.Params) *format.Policy {
	p := dialects[f].Policy()
	if p.Row("tools").Action == format.Forward {
		p = p.With(catalogkv.Params{"tools": {Policy: "forward", Otherwise: "reject"}})
	}
	return p.With(overrides...)
}

// send checks a body and returns the members of the body that goes to the provider.
func send(t *testing.T, f catalogkv.Format, p *format.Policy, body string) (map[string]string, *apierr.Error) {
	t.Helper()
	d, ok := dialects[f]
	if !ok {
		t.Fatalf("no dialect for %s", f)
	}
	r, e := d.Read(parse(t, body))
	if e != nil {
		t.Fatalf("%s: %v", body, e)
	}
	defer r.Release()
	if e := r.Check(p, format.Rules{Sheet: &price.Sheet{Rates: price.Rates{price.AudioOut: 1}}}); e != nil {
		return nil, e
	}
	out := r.AppendUpstream(nil, format.Target{Model: "upstream-1", Policy: p, IdentityFunc: func(v string) string { return "hash of " + v }})
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(out, &raw); err != nil {
		t.Fatalf("%s became %s: %v", body, out, err)
	}
	members := map[string]string{}
	for name, value := range raw {
		members[name] = string(value)
	}
	return members, nil
}

func refused(e *apierr.Error, param string) bool {
	return e != nil && e.Status == 400 && (e.Code == apierr.UnsupportedParameter || e.Code == apierr.UnsupportedValue) && e.Param == param
}

func TestEveryParameterFollowsItsAction(t *testing.T) {
	t.Parallel()
	for f, body := range formats {
		d := dialects[f]
		if d.Format() != f {
			t.Errorf("%s: the dialect is of %s", f, d.Format())
		}
		for _, name := range d.Policy().Names() {
			t.Run(string(f)+"/"+name, func(t *testing.T) {
				t.Parallel()
				checkAction(t, f, d.Policy(), d.Policy().Row(name), body)
			})
		}
		t.Run(string(f)+"/unknown parameter", func(t *testing.T) {
			t.Parallel()
			if _, e := send(t, f, d.Policy(), with(body, "nobody_knows", `1`)); !refused(e, "nobody_knows") {
				t.Errorf("got %v", e)
			}
			if got, e := send(t, f, d.Policy(), with(body, "nobody_knows", `null`)); e != nil || got["nobody_knows"] != "" {
				t.Errorf("null: got %v, %v", got, e)
			}
		})
	}
}

func checkAction(t *testing.T, f catalogkv.Format, p *format.Policy, row format.Param, body string) {
	t.Helper()
	top, _, nested := strings.Cut(row.Name, ".")
	if row.Name == "model" {
		if got, e := send(t, f, p, body); e != nil || got["model"] != `"upstream-1"` {
			t.Errorf("got %v, %v", got, e)
		}
		return
	}
	if !row.Required {
		got, e := send(t, f, p, with(body, row.Name, `null`))
		if e != nil {
			t.Fatalf("null counts as absent, but: %v", e)
		}
		if want, _ := send(t, f, p, without(body, top)); !nested && got[top] != want[top] {
			t.Errorf("null goes out as %s; want %q", got[top], want[top])
		}
	}
	for _, raw := range row.Deny {
		if _, e := send(t, f, p, with(body, row.Name, raw)); !refused(e, row.Name) {
			t.Errorf("%s: got %v", raw, e)
		}
	}
	for _, raw := range row.Allow {
		got, e := send(t, f, p, with(body, row.Name, raw))
		if e != nil || !nested && got[top] != row.Value {
			t.Errorf("%s: goes out as %s, %v; want %q", raw, got[top], e, row.Value)
		}
	}
	good := value(row)
	got, e := send(t, f, p, with(body, row.Name, good))
	switch row.Action {
	case format.Reject:
		if !refused(e, row.Name) && len(row.Allow) == 0 {
			t.Errorf("got %v", e)
		}
		if _, e := send(t, f, p, with(body, row.Name, `"another"`)); !refused(e, row.Name) {
			t.Errorf("got %v", e)
		}
		return
	case format.Force:
		if len(row.Allow) > 0 {
			if !refused(e, row.Name) {
				t.Errorf("got %v", e)
			}
			got, e = send(t, f, p, body)
		}
		if e != nil || got[top] != row.Value {
			t.Errorf("goes out as %s, %v; want %s", got[top], e, row.Value)
		}
		return
	case format.Forward, format.Drop, format.Clamp, format.Replace:
	}
	if e != nil {
		t.Fatalf("refused: %v", e)
	}
	if nested || row.Name == "stream_options" {
		return // the outgoing value is tested in the package of the format
	}
	want := map[format.Action]string{format.Forward: good, format.Clamp: good}[row.Action]
	if row.Action == format.Replace {
		want = fmt.Sprintf("%q", "hash of "+strings.Trim(good, `"`))
		if strings.HasPrefix(good, "{") {
			want = `{"user_id":"hash of me"}`
		}
	}
	if got[top] != want {
		t.Errorf("goes out as %q; want %q", got[top], want)
	}
	if row.Action == format.Clamp && row.Max > 0 {
		for raw, want := range map[string]int64{`1e30`: row.Max, `-5`: row.Min} {
			if got, e := send(t, f, p, with(body, row.Name, raw)); e != nil || got[top] != strconv.FormatInt(want, 10) {
				t.Errorf("%s goes out as %s, %v; want %d", raw, got[top], e, want)
			}
		}
	}
	if row.Types != 0 {
		if _, e := send(t, f, p, with(body, row.Name, wrong(row.Types))); e == nil || e.Code != apierr.InvalidValue || e.Param != row.Name {
			t.Errorf("a wrong type: got %v", e)
		}
	}
}

// wrong returns a value that has none of the types.
func wrong(types format.Types) string {
	for _, v := range []struct {
		types format.Types
		raw   string
	}{
		{format.Integer | format.Number, "7.5"}, {format.String, `"x"`}, {format.Array, `[]`}, {format.Object, `{}`},
	} {
		if types&v.types == 0 {
			return v.raw
		}
	}
	return `true`
}

// Values that refer to data stored at the provider, or that the provider bills besides
// the tokens, are refused with the path of the parameter.
func TestNestedParametersAreRefusedByPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		f           catalogkv.Format
		name, value string
		want        string // the parameter, empty if nothing is refused
	}{
		{catalogkv.Chat, "messages", `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"file","file":{"file_id":"f"}}]}]`, "messages[0].content[1].file.file_id"},
		{catalogkv.Chat, "messages", `[{"role":"user","content":{"type":"file","file":{"file_id":"f"}}}]`, "messages[0].content.file.file_id"},
		{catalogkv.Chat, "messages", `[{"role":"user","content":[[{"type":"file","file":{"file_id":"f"}}]]}]`, "messages[0].content[0][0].file.file_id"},
		{catalogkv.Chat, "messages", `["x",{"content":"\"file_id\""},{"content":[{"f\u0069le":{"file\u005fid":"f"}}]}]`, "messages[2].content[0].file.file_id"},
		{catalogkv.Chat, "messages", `[{"role":"user","content":[{"type":"file","file":{"file_data":"data:,x","file_id":null}}]}]`, ""},
		{catalogkv.Chat, "messages", `[{"role":"user","content":"a"},{"role":"assistant","audio":{"id":"audio_1"}}]`, "messages[1].audio.id"},
		{catalogkv.Chat, "messages", `[{"role":"assistant","audio":null,"content":"file_id"}]`, ""},
		{catalogkv.Chat, "messages", `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://pictures.example/1.png"}}],"name":"me"}]`, ""},
		{catalogkv.Chat, "tools", `[{"type":"function","function":{"name":"web_search"}},{"type":"custom"}]`, ""},
		{catalogkv.Chat, "tools", `[{"type":"function"},{"type":"web_search"}]`, "tools[1].type"},
		{catalogkv.Chat, "stream_options", `{"include_usage":true,"continuous_usage_stats":true}`, "stream_options.continuous_usage_stats"},
		{catalogkv.Chat, "web_search_options", `{}`, "web_search_options"},
		{catalogkv.Chat, "prompt_cache_options", `{"mode":"implicit","ttl":"30m"}`, ""},
		{catalogkv.Chat, "prompt_cache_options", `{"ttl":"12h"}`, "prompt_cache_options.ttl"},
		{catalogkv.Chat, "prompt_cache_options", `{"prewarm":true}`, "prompt_cache_options.prewarm"},
		{catalogkv.Chat, "prompt_cache_options", `{"comparison_response_id":"resp_1"}`, "prompt_cache_options.comparison_response_id"},
		{catalogkv.Chat, "prompt_cache_options", `{"another":1}`, "prompt_cache_options.another"},
		{catalogkv.Chat, "messages", `[{"role":"user","content":[{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}}]}]`, "messages[0].content[0].prompt_cache_breakpoint.ttl"},
		{catalogkv.Chat, "messages", `[{"role":"user","content":[{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit"}}]}]`, ""},
		{catalogkv.Chat, "input", `"a body of the other format"`, "input"},

		{catalogkv.Responses, "input", `[{"role":"user","content":"a"},{"type":"item_reference","id":"msg_1"}]`, "input[1].type"},
		{catalogkv.Responses, "input", `[{"id":"msg_1"}]`, "input[0].type"},
		{catalogkv.Responses, "input", `[{"type":null,"id":"msg_1"}]`, "input[0].type"},
		{catalogkv.Responses, "input", `[{"type":"item\u005freference","id":"msg_1"}]`, "input[0].type"},
		{catalogkv.Responses, "input", `[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_file","file_id":"f"}]}]`, "input[0].content[1].file_id"},
		{catalogkv.Responses, "input", `[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","file_id":"f"}]}]`, "input[0].output[0].file_id"},
		{catalogkv.Responses, "input", `[{"type":"computer_call_output","call_id":"c","output":{"type":"x","file_id":"f"}}]`, "input[0].output.file_id"},
		{catalogkv.Responses, "input", `[{"role":"user","content":[[{"type":"input_file","file_id":"f"}]]}]`, "input[0].content[0][0].file_id"},
		{catalogkv.Responses, "input", `[{"type":"reasoning","id":"rs_1","encrypted_content":"x"},{"type":"function_call","id":"fc_1","arguments":"{\"file_id\":1}"},{"role":"user","content":"item_reference"}]`, ""},
		{catalogkv.Responses, "tools", `[{"type":"function"},{"type":"custom"},{"type":"local_shell"},{"type":"apply_patch"},{"type":"namespace","tools":[{"type":"function"}]}]`, ""},
		{catalogkv.Responses, "tools", `[{"type":"namespace","tools":[{"type":"mcp"}]}]`, "tools[0].tools[0].type"},
		{catalogkv.Responses, "tools", `[{"type":"web_search"}]`, "tools[0].type"},
		{catalogkv.Responses, "tools", `[{"type":"image_generation"}]`, "tools[0].type"},
		{catalogkv.Responses, "tool_choice", `{"type":"web_search_preview"}`, "tool_choice.type"},
		{catalogkv.Responses, "tool_choice", `{"type":"function","name":"f"}`, ""},
		{catalogkv.Responses, "tool_choice", `{"type":"allowed_tools","mode":"auto","tools":[{"type":"function"},{"type":"mcp"}]}`, "tool_choice.tools[1].type"},
		{catalogkv.Responses, "include", `["reasoning.encrypted_content","message.output_text.logprobs","message.input_image.image_url","computer_call_output.output.image_url"]`, ""},
		{catalogkv.Responses, "access_programs", `{"cyber": "standard"}`, ""},
		{catalogkv.Responses, "access_programs", `{"cyber":"trusted"}`, "access_programs"},
		{catalogkv.Responses, "include", `["reasoning.encrypted_content","web_search_call.results"]`, "include[1]"},
		{catalogkv.Responses, "include", `["everything"]`, "include[0]"},
		{catalogkv.Responses, "reasoning", `{"effort":"low","mode":"pro"}`, "reasoning.mode"},
		{catalogkv.Responses, "reasoning", `{"effort":"low","summary":"auto"}`, ""},
		{catalogkv.Responses, "prompt_cache_options", `{"mode":"explicit","ttl":"30m"}`, ""},
		{catalogkv.Responses, "prompt_cache_options", `{"prewarm":false}`, ""},
		{catalogkv.Responses, "prompt_cache_options", `{"mode":"explicit","ttl":"12h"}`, "prompt_cache_options.ttl"},
		{catalogkv.Responses, "input", `[{"role":"user","content":[{"type":"input_text","text":"x","prompt_cache_breakpoint":{"ttl":"12h"}}]}]`, "input[0].content[0].prompt_cache_breakpoint.ttl"},
		{catalogkv.Responses, "prompt_cache_options", `{"prewarm":true}`, "prompt_cache_options.prewarm"},
		{catalogkv.Responses, "prompt_cache_options", `{"comparison_response_id":"r"}`, "prompt_cache_options.comparison_response_id"},
		{catalogkv.Responses, "stream_options", `{"include_usage":true}`, "stream_options.include_usage"},
		{catalogkv.Responses, "previous_response_id", `"resp_1"`, "previous_response_id"},
		{catalogkv.Responses, "background", `true`, "background"},

		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}]`, "messages[0].content[0].source.type"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":"a"},{"role":"user","content":[{"type":"container_upload","file_id":"f"}]}]`, "messages[1].content[0].type"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"f\u0069le"}}]}]}]`, "messages[0].content[0].content[1].source.type"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"file"}}]}}]}]`, "messages[0].content[0].source.content[0].source.type"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"tool_result","content":[[{"type":"image","source":{"file_id":"f"}}]]}]}]`, "messages[0].content[0].content[0][0].source.file_id"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"document","source":{"content":{"type":"image","source":{"type":"file"}}}}]}]`, "messages[0].content[0].source.content.source.type"},
		{catalogkv.Messages, "system", `[{"type":"text","text":"x"},{"type":"document","source":{"type":"file","file_id":"f"}}]`, "system[1].source.type"},
		{catalogkv.Messages, "system", `[{"type":"text","text":"file"}]`, ""},
		{catalogkv.Messages, "messages", `[{"role":"assistant","content":[{"type":"tool_use","input":{"source":{"type":"file"}}},{"type":"thinking","thinking":"file","signature":"x"}]}]`, ""},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"x"}},{"type":"image","source":{"type":"url","url":"x"}}]}]`, ""},
		{catalogkv.Messages, "tools", `[{"name":"f","input_schema":{}},{"type":"custom"},{"type":"bash_20250124"},{"type":"memory_20250818"},{"type":"text_editor_20250728"}]`, ""},
		{catalogkv.Messages, "tools", `[{"type":"web_search_20250305","name":"web_search"}]`, "tools[0].type"},
		{catalogkv.Messages, "tools", `[{"name":"f"},{"type":"advisor_20260101"}]`, "tools[1].type"},
		{catalogkv.Messages, "context_management", `{"edits":[{"type":"clear_thinking_20251015"},{"type":"clear_tool_uses_20250919"}]}`, ""},
		{catalogkv.Messages, "context_management", `{"edits":[{"type":"clear_thinking_20251015"},{"type":"compact_20260112"}]}`, "context_management.edits[1].type"},
		{catalogkv.Messages, "cache_control", `{"type":"ephemeral","ttl":"1h"}`, "cache_control.ttl"},
		{catalogkv.Messages, "system", `[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]`, "system[0].cache_control.ttl"},
		{catalogkv.Messages, "tools", `[{"name":"f","cache_control":{"type":"ephemeral","ttl":"1h"}}]`, "tools[0].cache_control.ttl"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"x","cache_control":{"ttl":"1h"}}]}]}]`, "messages[0].content[0].content[0].cache_control.ttl"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"tool_addition","tool":{"name":"f","cache_control":{"ttl":"1h"}}}]}]`, "messages[0].content[0].tool.cache_control.ttl"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"5m"}},{"type":"text","text":"x","cache_control":null}]}]`, ""},
		{catalogkv.Messages, "inference_geo", `"global"`, ""},
		{catalogkv.Messages, "inference_geo", `"us"`, "inference_geo"},
		{catalogkv.Messages, "diagnostics", `{"previous_message_id": null}`, ""},
		{catalogkv.Messages, "diagnostics", `{"previous_message_id":"msg_1"}`, "diagnostics"},
		{catalogkv.Messages, "speed", `"fast"`, "speed"},

		{catalogkv.Images, "stream", `true`, "stream"},
		{catalogkv.Images, "partial_images", `2`, "partial_images"},
		{catalogkv.Images, "output_format", `"svg"`, "output_format"},
		{catalogkv.Images, "output_format", `"webp"`, ""},

		{catalogkv.Videos, "input_reference", `{"file_id":"f"}`, "input_reference.file_id"},
		{catalogkv.Videos, "input_reference", `{"image_url":"https://pictures.example/1.png"}`, ""},
		{catalogkv.Videos, "input_reference", `{"video_url":"x"}`, "input_reference.video_url"},
	}
	for _, tt := range tests {
		t.Run(string(tt.f)+" "+tt.value, func(t *testing.T) {
			t.Parallel()
			_, e := send(t, tt.f, strict(tt.f), with(formats[tt.f], tt.name, tt.value))
			if tt.want == "" && e != nil || tt.want != "" && !refused(e, tt.want) {
				t.Errorf("got %v; want a refusal of %q", e, tt.want)
			}
		})
	}
}

// Tools that the provider runs are accepted if the model's policy allows them and the
// model has a price for them.
func TestProviderRunToolsNeedPolicyAndPrice(t *testing.T) {
	t.Parallel()
	tests := []struct {
		f           catalogkv.Format
		allow       string
		name, value string
		ok          bool
	}{
		{catalogkv.Responses, `"web_search"`, "tools", `[{"type":"web_search"}]`, true},
		{catalogkv.Responses, `"web_search"`, "tools", `[{"type":"web_search_preview"}]`, false},
		{catalogkv.Responses, `"web_search*"`, "tools", `[{"type":"web_search_preview"}]`, true},
		{catalogkv.Responses, `"web_search"`, "tool_choice", `{"type":"web_search"}`, true},
		{catalogkv.Responses, `"web_search"`, "include", `["web_search_call.action.sources"]`, true},
		{catalogkv.Responses, `"web_search"`, "include", `["file_search_call.results"]`, false},
		{catalogkv.Responses, `"*"`, "tools", `[{"type":"image_generation"}]`, false},
		{catalogkv.Messages, `"web_search_*"`, "tools", `[{"type":"web_search_20250305"}]`, true},
		{catalogkv.Messages, `"*"`, "tools", `[{"type":"mcp_toolset"}]`, false},
	}
	for _, tt := range tests {
		d := dialects[tt.f]
		p := strict(tt.f, catalogkv.Params{"tools": {Policy: "forward", Allow: []json.RawMessage{json.RawMessage(tt.allow)}}})
		r, e := d.Read(parse(t, with(formats[tt.f], tt.name, tt.value)))
		if e != nil {
			t.Fatal(e)
		}
		if e := r.Check(p, format.Rules{Sheet: &price.Sheet{FreeServerTool: true}}); (e == nil) != tt.ok {
			t.Errorf("%s with %s: %v", tt.value, tt.allow, e)
		}
		if e := r.Check(p, format.Rules{}); e == nil {
			t.Errorf("%s with %s is accepted without a price", tt.value, tt.allow)
		}
		r.Release()
	}
}

// A lifetime of a cache and spoken answers cost more than the line of the sheet that would apply without their own.
func TestValuesThatCostMoreNeedARateOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		f           catalogkv.Format
		name, value string
		line        price.Line
		param       string
		code        apierr.Code
	}{
		{catalogkv.Chat, "prompt_cache_options", `{"ttl":"12h"}`, price.CacheWrite12h, "prompt_cache_options.ttl", apierr.UnsupportedValue},
		{catalogkv.Responses, "prompt_cache_options", `{"ttl":"12h"}`, price.CacheWrite12h, "prompt_cache_options.ttl", apierr.UnsupportedValue},
		{catalogkv.Messages, "system", `[{"type":"text","text":"x","cache_control":{"ttl":"1h"}}]`, price.CacheWrite1h, "system[0].cache_control.ttl", apierr.UnsupportedValue},
		{catalogkv.Chat, "modalities", `["text","audio"]`, price.AudioOut, "modalities[1]", apierr.UnsupportedValue},
		{catalogkv.Chat, "audio", `{"voice":"alloy","format":"wav"}`, price.AudioOut, "audio", apierr.UnsupportedParameter},
	} {
		body := with(formats[tt.f], tt.name, tt.value)
		priced := format.Rules{Sheet: &price.Sheet{Rates: price.Rates{tt.line: 0}}}
		if out, e := outgoing(t, tt.f, dialects[tt.f].Policy(), priced, body); e != nil || !strings.Contains(out, tt.value) {
			t.Errorf("%s %s with a rate: sent as %s, %v", tt.f, tt.value, out, e)
		}
		if _, e := outgoing(t, tt.f, dialects[tt.f].Policy(), format.Rules{}, body); !refused(e, tt.param) || e.Code != tt.code {
			t.Errorf("%s %s without a rate: %v", tt.f, tt.value, e)
		}
	}
}

// A parameter that makes the provider use a secondary model is accepted only if the policy allows it and the price
// sheet has a price for that model.
func TestSecondaryModelsNeedPolicyAndPrice(t *testing.T) {
	t.Parallel()
	tools := func(kind string) catalogkv.Params {
		return catalogkv.Params{"tools": {Policy: "forward", Allow: []json.RawMessage{json.RawMessage(kind)}}}
	}
	tests := []struct {
		f           catalogkv.Format
		params      catalogkv.Params
		name, value string
		kind        string
	}{
		{catalogkv.Responses, tools(`"image_generation"`), "tools", `[{"type":"image_generation"}]`, price.ImageTool},
		{catalogkv.Messages, tools(`"advisor_*"`), "tools", `[{"type":"advisor_20260301"}]`, price.Advisor},
		{catalogkv.Images, catalogkv.Params{"output_format": {Policy: "forward"}}, "output_format", `"svg"`, price.SVG},
		{catalogkv.Images, catalogkv.Params{"svg": {Policy: "forward"}}, "svg", `{"model":"x"}`, price.SVG},
	}
	for _, tt := range tests {
		d := dialects[tt.f]
		allowed := strict(tt.f, tt.params)
		only := func(kind string) format.Rules {
			return format.Rules{Sheet: &price.Sheet{FreeServerTool: true, Secondary: []price.SecondaryPrice{{Kind: kind}}}}
		}
		for _, variant := range []struct {
			policy *format.Policy
			rules  format.Rules
			ok     bool
		}{
			{allowed, only(tt.kind), true}, {allowed, only("other"), false}, {allowed, format.Rules{Sheet: &price.Sheet{FreeServerTool: true}}, false}, {strict(tt.f), only(tt.kind), false},
		} {
			r, e := d.Read(parse(t, with(formats[tt.f], tt.name, tt.value)))
			if e != nil {
				t.Fatal(e)
			}
			if e := r.Check(variant.policy, variant.rules); (e == nil) != variant.ok || e != nil && !refused(e, e.Param) {
				t.Errorf("%s %s: got %v; want acceptance: %v", tt.f, tt.value, e, variant.ok)
			}
			r.Release()
		}
	}
}

func TestBodyWithoutRequiredParameterIsRefused(t *testing.T) {
	t.Parallel()
	want := map[catalogkv.Format][]string{
		catalogkv.Chat:     {"messages"},
		catalogkv.Messages: {"max_tokens", "messages"},
		catalogkv.Images:   {"prompt"},
		catalogkv.Videos:   {"prompt"},
	}
	for f := range formats {
		d := dialects[f]
		var got []string
		for _, name := range d.Policy().Names() {
			if d.Policy().Row(name).Required {
				got = append(got, name)
			}
		}
		if diff := cmp.Diff(want[f], got); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", f, diff)
		}
		for _, name := range got {
			r, _ := d.Read(parse(t, `{"model":"m"}`))
			e := r.Check(d.Policy(), format.Rules{})
			if e == nil || e.Code != apierr.InvalidRequest || e.Status != 400 {
				t.Errorf("%s without %s: %v", f, name, e)
			}
		}
	}
}
