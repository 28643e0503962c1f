package conformance

import (
	"encoding/json"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// offering returns a policy that offers tools of the provider.
func offering(kinds ...string) *format.Policy {
	var allow []json.RawMessage
	for _, kind := range kinds {
		allow = append(allow, json.RawMessage(`"`+kind+`"`))
	}
	return strict(catalogkv.Responses, catalogkv.Params{"tools": {Policy: "forward", Allow: allow}})
}

// Members below the parameters that the newest client libraries have, and that cost nothing, reach the provider.
func TestNestedMembersThatCostNothingPass(t *testing.T) {
	t.Parallel()
	const chat, responses, messages = catalogkv.Chat, catalogkv.Responses, catalogkv.Messages
	all := offering("web_search", "code_interpreter", "mcp", "shell", "programmatic_tool_calling")
	rules := format.Rules{Sheet: &price.Sheet{ServerTool: 10}}
	for _, tt := range []struct {
		f           catalogkv.Format
		name, value string
	}{
		{responses, "reasoning", `{"context":"all_turns"}`},
		{responses, "reasoning", `{"context":"current_turn","effort":"low","mode":"standard"}`},
		{responses, "input", `[{"role":"user","content":[{"type":"input_text","text":"x","prompt_cache_breakpoint":{"mode":"explicit"}}]}]`},
		{responses, "input", `[{"role":"user","content":[{"type":"input_image","image_url":"https://x.example/1.png","prompt_cache_breakpoint":{"ttl":"30m"}}]}]`},
		{responses, "input", `[{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x","prompt_cache_breakpoint":{}}]}]`},
		{chat, "messages", `[{"role":"user","content":[{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit"}}]}]`},
		{responses, "tools", `[{"type":"web_search","external_web_access":false}]`},
		{responses, "tools", `[{"type":"web_search","external_web_access":true,"search_context_size":"high"}]`},
		{responses, "tools", `[{"type":"code_interpreter","container":{"type":"auto","file_ids":[],"memory_limit":"1g"}}]`},
		{responses, "tools", `[{"type":"mcp","server_label":"s","server_url":"https://x.example","tunnel_id":null}]`},
		{responses, "tools", `[{"type":"programmatic_tool_calling"},{"type":"function","name":"f","allowed_callers":["programmatic"]}]`},
		{responses, "tools", `[{"type":"shell","environment":{"type":"local","skills":[{"name":"s","path":"/s"}]}}]`},
		{messages, "output_config", `{"task_budget":{"type":"tokens","total":20000,"remaining":500}}`},
	} {
		p, r := dialects[tt.f].Policy(), format.Rules{}
		if tt.name == "tools" {
			p, r = all, rules
		}
		out, e := outgoing(t, tt.f, p, r, with(formats[tt.f], tt.name, tt.value))
		if e != nil || !strings.Contains(out, tt.value) {
			t.Errorf("%s %s: got %v, sent %s", tt.name, tt.value, e, out)
		}
	}
}

// Those that cost more than what has a price, or that name what is stored for the account of the gateway, are refused by name
// even if the model offers the tool.
func TestNestedMembersThatCostMoreOrNameStoredThingsAreRefused(t *testing.T) {
	t.Parallel()
	p := offering("web_search", "code_interpreter", "mcp", "shell", "image_generation")
	rules := format.Rules{Sheet: &price.Sheet{ServerTool: 10, Secondary: []price.SecondaryPrice{{Kind: price.ImageTool}}}}
	for _, tt := range []struct {
		name, value, param string
		code               apierr.Code
	}{
		{"reasoning", `{"context":"auto","mode":"pro"}`, "reasoning.mode", apierr.UnsupportedValue},
		{"input", `[{"role":"user","content":[{"type":"input_text","text":"x","prompt_cache_breakpoint":{"ttl":"12h"}}]}]`, "input[0].content[0].prompt_cache_breakpoint.ttl", apierr.UnsupportedValue},
		{"tools", `[{"type":"mcp","server_label":"s","tunnel_id":"tunnel_1"}]`, "tools[0].tunnel_id", apierr.UnsupportedParameter},
		{"tools", `[{"type":"namespace","name":"n","tools":[{"type":"mcp","server_label":"s","tunnel_id":"tunnel_1"}]}]`, "tools[0].tools[0].tunnel_id", apierr.UnsupportedParameter},
		{"input", `[{"type":"additional_tools","role":"developer","tools":[{"type":"mcp","server_label":"s","tunnel_id":"tunnel_1"}]}]`, "input[0].tools[0].tunnel_id", apierr.UnsupportedParameter},
		{"tools", `[{"type":"code_interpreter","container":"cntr_1"}]`, "tools[0].container", apierr.UnsupportedParameter},
		{"tools", `[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-1"]}}]`, "tools[0].container.file_ids", apierr.UnsupportedParameter},
		{"tools", `[{"type":"code_interpreter","container":{"type":"auto","memory_limit":"64g"}}]`, "tools[0].container.memory_limit", apierr.UnsupportedValue},
		{"tools", `[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}}]`, "tools[0].environment.container_id", apierr.UnsupportedParameter},
		{"tools", `[{"type":"shell","environment":{"type":"container_auto","memory_limit":"4g"}}]`, "tools[0].environment.memory_limit", apierr.UnsupportedValue},
		{"tools", `[{"type":"shell","environment":{"type":"container_auto","skills":[{"type":"skill_reference","skill_id":"skill_1"}]}}]`, "tools[0].environment.skills", apierr.UnsupportedParameter},
		{"tools", `[{"type":"image_generation","input_image_mask":{"file_id":"file-1"}}]`, "tools[0].input_image_mask.file_id", apierr.UnsupportedParameter},
	} {
		_, e := outgoing(t, catalogkv.Responses, p, rules, with(formats[catalogkv.Responses], tt.name, tt.value))
		if e == nil || e.Status != 400 || e.Code != tt.code || e.Param != tt.param {
			t.Errorf("%s %s: got %+v; want a refusal of %s", tt.name, tt.value, e, tt.param)
		}
	}
}
