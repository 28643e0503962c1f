package conformance

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

// outgoing checks a body with the rules and returns the body that goes to the provider.
func outgoing(t *testing.T, f catalogkv.Format, p *format.Policy, rules format.Rules, body string) (string, *apierr.Error) {
	t.Helper()
	r, e := dialects[f].Read(parse(t, body))
	if e != nil {
		t.Fatal(e)
	}
	defer r.Release()
	if e := r.Check(p, rules); e != nil {
		return "", e
	}
	out := string(r.AppendUpstream(nil, format.Target{Model: "m", Policy: p, Rules: rules}))
	if !json.Valid([]byte(out)) {
		t.Errorf("%s goes out as %s", body, out)
	}
	return out, nil
}

func TestOfferedToolsOfTheProviderAreLeftOut(t *testing.T) {
	t.Parallel()
	const responses, messages = catalogkv.Responses, catalogkv.Messages
	tests := []struct {
		f          catalogkv.Format
		body, want string // members of the body, as received and as they go out
	}{
		// Tools that the client runs stay.
		{responses, `"input":"x","tools":[{"type":"tool_search","execution":"client"},{"type":"computer"},{"type":"computer_use_preview"},{"type":"shell","environment":{"type":"local"}}]`, ``},
		{messages, `"tools":[{"type":"computer_20250124"},{"type":"browser_toolset_20260801"},{"name":"f"}]`, ``},

		{responses, `"input":"x","tools":[{"type":"function","name":"f"},{"type":"web_search","x":[1]},{"type":"mcp"}],"tool_choice":"auto"`, `"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":"auto"`},
		{responses, `"input":"x","tools":[{"type":"web_search"}],"tool_choice":"none","temperature":1`, `"input":"x","temperature":1`},
		{responses, `"input":"x","tools":[{"type":"tool_search"},{"type":"shell","environment":{"type":"container_auto"}},{"type":"shell"},{"type":"custom","name":"f"}]`, `"input":"x","tools":[{"type":"custom","name":"f"}]`},
		{responses, `"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}`, `"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}`},
		{responses, `"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"}],"tool_choice":"required"`, `"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":"required"`},
		{responses, `"input":"x","tools":[{"type":"web_search"},{"type":"custom","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"custom","name":"f"},{"type":"web_search"}]}`, `"input":"x","tools":[{"type":"custom","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"custom","name":"f"}]}`},
		{responses, `"input":"x","tools":[{"type":"web_search"},{"type":"custom"}],"include":["reasoning.encrypted_content","web_search_call.results"]`, `"input":"x","tools":[{"type":"custom"}],"include":["reasoning.encrypted_content"]`},
		{responses, `"input":"x","tools":[{"type":"web_search_preview"},{"type":"custom"}],"include":["web_search_call.results"],"store":false`, `"input":"x","tools":[{"type":"custom"}],"store":false`},
		{responses, `"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp"},{"type":"function","name":"f"}]},{"type":"namespace","name":"o","tools":[{"type":"mcp"}]}]`, `"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]`},

		// Tools within the input.
		{responses, `"input":[{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"},{"type":"code_interpreter","container":{"type":"auto"}}]},{"role":"user","content":"x"}]`, `"input":[{"role":"user","content":"x"}]`},
		{responses, `"input":[{"type":"additional_tools","tools":[{"type":"image_generation"},{"type":"function","name":"f"}],"role":"developer"},{"role":"user","content":"x"}],"tool_choice":"required"`, `"input":[{"type":"additional_tools","tools":[{"type":"function","name":"f"}],"role":"developer"},{"role":"user","content":"x"}],"tool_choice":"required"`},
		{responses, `"input":[{"type":"tool_search_output","call_id":"c","t\u006fols":[{"ty\u0070e":"mcp","server_url":"https://x"}]},{"role":"user","content":"x"}]`, `"input":[{"type":"tool_search_output","call_id":"c","t\u006fols":[]},{"role":"user","content":"x"}]`},
		{responses, `"input":[{"role":"user","content":"x","tools":[{"type":"web_search"}]}]`, `"input":[{"role":"user","content":"x","tools":[]}]`},
		{responses, `"input":[{"type":"mcp_list_tools","server_label":"s","tools":[{"name":"a","input_schema":{}}]}]`, ``},

		{messages, `"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f"}],"tool_choice":{"type":"auto"}`, `"tools":[{"name":"f"}],"tool_choice":{"type":"auto"}`},
		{messages, `"tools":[{"type":"mcp_toolset","mcp_server_name":"s"}],"tool_choice":{"type":"none"}`, `` + "-"},

		// What needs a tool that is left out goes with it.
		{responses, `"input":"x","tools":[{"type":"tool_search"},{"type":"function","name":"a","defer_loading":true},{"type":"namespace","name":"n","tools":[{"type":"function","name":"b","defer_loading":true}]}]`, `"input":"x","tools":[{"type":"function","name":"a"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"b"}]}]`},
		{responses, `"input":[{"type":"tool_search_output","tools":[{"type":"function","name":"a","defer_loading":true}]},{"role":"user","content":"x"}],"tools":[{"type":"tool_search"},{"type":"function","name":"a","defer_loading":true}]`, `"input":[{"type":"tool_search_output","tools":[{"type":"function","name":"a"}]},{"role":"user","content":"x"}],"tools":[{"type":"function","name":"a"}]`},
		{responses, `"input":"x","tools":[{"type":"tool_search","execution":"client"},{"type":"web_search"},{"type":"function","name":"a","defer_loading":true}]`, `"input":"x","tools":[{"type":"tool_search","execution":"client"},{"type":"function","name":"a","defer_loading":true}]`},
		{responses, `"input":"x","tools":[{"type":"programmatic_tool_calling"},{"type":"function","name":"a","allowed_callers":["programmatic"]}]`, `"input":"x","tools":[{"type":"function","name":"a"}]`},
		{messages, `"tools":[{"name":"a","defer_loading":true},{"type":"tool_search_tool_bm25_20251119","name":"s"},{"name":"b","defer_loading":true,"x":1}]`, `"tools":[{"name":"a"},{"name":"b","x":1}]`},
		{messages, `"tools":[{"type":"code_execution_20260521","name":"c"},{"name":"a","allowed_callers":["code_execution_20260521"]},{"name":"b","allowed_callers":["direct","code_execution_20260521"]}]`, `"tools":[{"name":"a"},{"name":"b","allowed_callers":["direct"]}]`},
		{messages, `"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f"}],"tool_choice":{"type":"tool","name":"f"}`, `"tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"f"}`},
		{messages, `"tools":[{"name":"f"}],"messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"web_search_20250305","name":"s"}}]},{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"code_execution_20250825","name":"c"}}}]}]`, `"tools":[{"name":"f"}],"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]`},
		{messages, `"tools":[{"name":"f"},{"type":"web_search_20250305","name":"s"}],"messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_reference","name":"s"}},{"type":"tool_removal","tool":{"type":"tool_reference","name":"f"}}]},{"role":"user","content":"x"}]`, `"tools":[{"name":"f"}],"messages":[{"role":"system","content":[{"type":"tool_removal","tool":{"type":"tool_reference","name":"f"}}]},{"role":"user","content":"x"}]`},
		{messages, `"messages":[{"role":"assistant","content":[{"type":"compaction","content":"x","tool_changes":[{"type":"tool_addition","tool":{"type":"web_fetch_20250910","name":"s"}}]},{"type":"text","text":"y"}]}]`, `"messages":[{"role":"assistant","content":[{"type":"compaction","content":"x","tool_changes":[]},{"type":"text","text":"y"}]}]`},
		{messages, `"system":[{"type":"text","text":"x"},{"type":"tool_addition","tool":{"type":"advisor_20260301"}}]`, `"system":[{"type":"text","text":"x"}]`},
	}
	for _, tt := range tests {
		p := dialects[tt.f].Policy()
		body := func(members string) string {
			if tt.f == messages && !strings.Contains(members, `"messages"`) {
				members = `"messages":[{"role":"user","content":"x"}],` + members
			}
			return `{"model":"m","max_` + map[catalogkv.Format]string{responses: "output_", messages: ""}[tt.f] + `tokens":9,` + strings.TrimSuffix(members, ",") + "}"
		}
		want := tt.want
		switch want {
		case "":
			want = tt.body
		case "-":
			want = ""
		}
		got, e := outgoing(t, tt.f, p, format.Rules{}, body(tt.body))
		forced, _ := outgoing(t, tt.f, p, format.Rules{}, body(want)) // with the parameters that are always sent
		if e != nil || got != forced {
			t.Errorf("%s\ngoes out as\n%s, %v\nwant\n%s", tt.body, got, e, forced)
		}
	}
}

func TestForcedToolsOfTheProviderAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		f                 catalogkv.Format
		body, param, word string
	}{
		{catalogkv.Responses, `"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`, "tools[0].type", "web_search"},
		{catalogkv.Responses, `"tools":[{"type":"function","name":"f"},{"type":"mcp"}],"tool_choice":{"type":"mcp","server_label":"s"}`, "tools[1].type", "mcp"},
		{catalogkv.Responses, `"tools":[{"type":"web_search"}],"tool_choice":"required"`, "tools[0].type", "web_search"},
		{catalogkv.Responses, `"input":[{"type":"additional_tools","tools":[{"type":"code_interpreter"}]}],"tool_choice":"required"`, "input[0].tools[0].type", "code_interpreter"},
		{catalogkv.Responses, `"tool_choice":{"type":"file_search"}`, "tool_choice.type", "file_search"},
		{catalogkv.Responses, `"tools":[{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}`, "tools[0].type", "web_search"},
		{catalogkv.Responses, `"include":["web_search_call.results"]`, "include[0]", "web_search_call.results"},
		{catalogkv.Responses, `"input":[{"type":"compaction_trigger"}]`, "input[0].type", "compaction_trigger"},
		{catalogkv.Responses, `"service_tier":"priority"`, "service_tier", "priority"},
		{catalogkv.Messages, `"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f"}],"tool_choice":{"type":"tool","name":"web_search"}`, "tools[0].type", "web_search_20250305"},
		{catalogkv.Messages, `"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any"}`, "tools[0].type", "web_search_20250305"},
		{catalogkv.Chat, `"tools":[{"type":"web_search"}]`, "tools[0].type", "web_search"},

		// Nothing but the tool is asked for: an answer without it would be an invented one.
		{catalogkv.Responses, `"tools":[{"type":"web_search"},{"type":"code_interpreter"}]`, "tools[0].type", "web_search"},
		{catalogkv.Responses, `"tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp"}]}],"tool_choice":"auto"`, "tools[0].tools[0].type", "mcp"},
		{catalogkv.Messages, `"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"auto"}`, "tools[0].type", "web_search_20250305"},

		// A refused value is named, and has a code of its own.
		{catalogkv.Messages, `"context_management":{"edits":[{"type":"compact_20260112"}]}`, "context_management.edits[0].type", "compact_20260112"},
		{catalogkv.Messages, `"speed":"fast"`, "speed", "fast"},
		{catalogkv.Images, `"moderation":"low"`, "moderation", "low"},
		{catalogkv.Chat, `"service_tier":"flex"`, "service_tier", "flex"},
	}
	for _, tt := range tests {
		body := strings.TrimSuffix(formats[tt.f], "}") + "," + tt.body + "}"
		if strings.Contains(tt.body, `"input"`) {
			body = `{"model":"m",` + tt.body + "}"
		}
		_, e := outgoing(t, tt.f, dialects[tt.f].Policy(), format.Rules{}, body)
		if !refused(e, tt.param) || !strings.Contains(e.Message, `"`+tt.word+`"`) {
			t.Errorf("%s: got %v with param %q", tt.body, e, e.Param)
		}
		if isTool := strings.Contains(e.Message, "The tool"); (e.Code == apierr.UnsupportedParameter) != isTool {
			t.Errorf("%s: got the code %s", tt.body, e.Code)
		}
	}
	for _, tool := range []string{`[]`, `[{"type":"web_search"}]`, `"web_search"`} {
		_, e := outgoing(t, catalogkv.Responses, dialects[catalogkv.Responses].Policy(), format.Rules{}, with(formats[catalogkv.Responses], "tools", "["+tool+"]"))
		if e == nil || e.Code != apierr.InvalidValue || e.Param != "tools[0]" {
			t.Errorf("a tool %s: got %v", tool, e)
		}
	}
}

// A lenient provider reads one object in place of a list, or lists within lists, which would not be checked.
func TestValuesOfAnotherShapeThatCanHoldToolsOrFilesAreRefused(t *testing.T) {
	t.Parallel()
	const search, file = `{"type":"web_search"}`, `{"type":"file","file":{"file_id":"f"}}`
	for _, tt := range []struct {
		f                  catalogkv.Format
		name, value, param string
	}{
		{catalogkv.Chat, "messages", `[[{"role":"user","content":[` + file + `]}]]`, "messages[0]"},
		{catalogkv.Chat, "tools", search, "tools"},
		{catalogkv.Responses, "input", `[[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]]`, "input[0]"},
		{catalogkv.Responses, "input", `[{"type":"additional_tools","tools":` + search + `}]`, "input[0].tools"},
		{catalogkv.Responses, "tools", `[{"type":"namespace","name":"n","tools":` + search + `}]`, "tools[0].tools"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":{"type":"tool_addition","tool":` + search + `}}]`, "messages[0].content"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[[{"type":"image","source":{"type":"file"}}]]}]`, "messages[0].content[0]"},
		{catalogkv.Messages, "messages", `[[{"role":"user","content":"x"}]]`, "messages[0]"},
		{catalogkv.Messages, "messages", `[{"role":"user","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":[` + search + `]}}]}]`, "messages[0].content[0].tool.definition"},
		{catalogkv.Messages, "system", `[[{"type":"tool_addition","tool":` + search + `}]]`, "system[0]"},
	} {
		out, e := outgoing(t, tt.f, dialects[tt.f].Policy(), format.Rules{}, with(formats[tt.f], tt.name, tt.value))
		if e == nil || e.Code != apierr.InvalidValue || e.Param != tt.param {
			t.Errorf("%s %s: got %+v, sent %s; want %q", tt.f, tt.value, e, out, tt.param)
		}
	}
}

// Each entry is a way to ask a provider for something with a price of its own, found in the public documents of the
// formats member by member. Without a price for it, none may reach a provider with the words that ask for it.
func TestNothingWithAPriceOfItsOwnReachesTheProvider(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/paid.json")
	if err != nil {
		t.Fatal(err)
	}
	var list map[catalogkv.Format][]struct {
		About string          `json:"about"`
		Add   json.RawMessage `json:"add"`
		Asks  string          `json:"asks"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for f, body := range formats {
		if len(list[f]) == 0 {
			t.Errorf("%s: no entries", f)
		}
		for _, entry := range list[f] {
			var add map[string]json.RawMessage
			if err := json.Unmarshal(entry.Add, &add); err != nil {
				t.Fatal(err)
			}
			request := body
			for name, value := range add {
				request = with(request, name, string(value))
			}
			if !strings.Contains(request, entry.Asks) {
				t.Errorf("%s, %s: %q is not in the request", f, entry.About, entry.Asks)
			}
			if got, e := outgoing(t, f, dialects[f].Policy(), format.Rules{}, request); e == nil && strings.Contains(got, entry.Asks) {
				t.Errorf("%s, %s: goes out as %s", f, entry.About, got)
			}
		}
	}
}

func TestThreadsAreRefusedWithDetailsForToolRunners(t *testing.T) {
	t.Parallel()
	_, e := outgoing(t, catalogkv.Messages, dialects[catalogkv.Messages].Policy(), format.Rules{}, with(formats[catalogkv.Messages], "thread", `{"type":"create"}`))
	if !refused(e, "thread") {
		t.Fatalf("got %v", e)
	}
	const want = `"param":"thread","details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}}`
	if got := string(e.MessagesEnvelope("req_1")); !strings.Contains(got, want) {
		t.Errorf("got %s; want %s in it", got, want)
	}
}

func TestRefusalNamesTheParameterWithTheEmptyName(t *testing.T) {
	t.Parallel()
	for f, body := range formats {
		_, e := outgoing(t, f, dialects[f].Policy(), format.Rules{}, with(body, "", "1"))
		if !refused(e, "") || !strings.Contains(string(e.Envelope("req_1")), `"param":""`) {
			t.Errorf("%s: got %v", f, e)
		}
	}
}

// A client that never said that nothing is stored sends reasoning items back by their ids. They have to have content then.
func TestEncryptedReasoningIsAskedForWhereNothingIsStored(t *testing.T) {
	t.Parallel()
	const encrypted = `"reasoning.encrypted_content"`
	p := dialects[catalogkv.Responses].Policy()
	override := func(name, policy string) *format.Policy { return p.With(catalogkv.Params{name: {Policy: policy}}) }
	for _, tt := range []struct {
		add    string
		policy *format.Policy
		want   string
	}{
		{``, p, `"include":[` + encrypted + `]`},
		{`,"store":true,"include":null`, p, `"include":[` + encrypted + `]`},
		{`,"include":[ ]`, p, `"include":[` + encrypted + `]`},
		{`,"include":["message.output_text.logprobs"]`, p, `"include":["message.output_text.logprobs",` + encrypted + `]`},
		{`,"include":["reasoning\u002eencrypted_content"]`, p, `"include":["reasoning\u002eencrypted_content"]`},
		{`,"include":["web_search_call.results"],"tools":[{"type":"web_search"},{"type":"custom"}]`, p, `"include":[` + encrypted + `]`},
		{`,"store":false`, p, ``},
		{`,"store":false,"include":[` + encrypted + `]`, p, `"include":[` + encrypted + `]`},
		{``, override("include", "drop"), ``},
		{``, override("store", "forward"), ``},
	} {
		out, e := outgoing(t, catalogkv.Responses, tt.policy, format.Rules{}, `{"model":"m","input":"x"`+tt.add+`}`)
		if e != nil || !strings.Contains(out, tt.want) || tt.want == "" && strings.Contains(out, "include") {
			t.Errorf("%s: sent as %s, %v; want %s", tt.add, out, e, tt.want)
		}
	}
	r, _ := dialects[catalogkv.Responses].Read(parse(t, `{"model":"m","input":"x"}`))
	defer r.Release()
	for _, without := range []format.Added{0, format.AddedInclude} {
		out := r.AppendUpstream(nil, format.Target{Model: "m", Policy: p, Without: without})
		if added := without == 0; strings.Contains(string(out), "include") != added || (r.Added()&format.AddedInclude != 0) != added {
			t.Errorf("without the addition: %v, sent as %s", without, out)
		}
	}
}

// Tools that cost nothing but tokens need no price for calls, but the model must offer them.
func TestToolsThatCostTokensOnlyNeedNoPriceForCalls(t *testing.T) {
	t.Parallel()
	for f, kind := range map[catalogkv.Format]string{catalogkv.Responses: "tool_search", catalogkv.Messages: "web_fetch_20260318"} {
		for _, allow := range []string{"", kind} {
			p := strict(f)
			if allow != "" {
				p = strict(f, catalogkv.Params{"tools": {Policy: "forward", Allow: []json.RawMessage{json.RawMessage(`"` + allow + `"`)}}})
			}
			_, e := outgoing(t, f, p, format.Rules{}, with(formats[f], "tools", `[{"type":"`+kind+`","name":"s"}]`))
			if (e == nil) != (allow != "") {
				t.Errorf("%s, allowed %q: %v", kind, allow, e)
			}
		}
	}
}

func TestRefusalsOfStoredDataSayWhatToDo(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"previous_response_id": `"resp_1"`, "conversation": `"conv_1"`, "background": `true`, "prompt": `{"id":"pmpt_1"}`, "input": `[{"type":"item_reference","id":"rs_1"}]`,
	} {
		_, e := outgoing(t, catalogkv.Responses, dialects[catalogkv.Responses].Policy(), format.Rules{}, with(formats[catalogkv.Responses], name, value))
		if e == nil || e.Code != apierr.UnsupportedParameter || !strings.Contains(e.Message, "Nothing is stored between requests.") {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// A refusal of a value names it, so that one sees which of the values of a list or of a default is meant.
func TestRefusalsOfValuesNameTheValue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		f                        catalogkv.Format
		name, value, param, word string
	}{
		{catalogkv.Messages, "context_management", `{"edits":[{"type":"clear_thinking_20251015"},{"type":"compact_20260112"}]}`, "context_management.edits[1].type", "compact_20260112"},
		{catalogkv.Messages, "speed", `"fast"`, "speed", "fast"},
		{catalogkv.Messages, "inference_geo", `"us"`, "inference_geo", "us"},
		{catalogkv.Responses, "service_tier", `"flex"`, "service_tier", "flex"},
		{catalogkv.Chat, "service_tier", `"priority"`, "service_tier", "priority"},
		{catalogkv.Images, "moderation", `"low"`, "moderation", "low"},
		{catalogkv.Images, "output_format", `"svg"`, "output_format", "svg"},
	} {
		_, e := outgoing(t, tt.f, dialects[tt.f].Policy(), format.Rules{}, with(formats[tt.f], tt.name, tt.value))
		if e == nil || e.Status != 400 || e.Code != apierr.UnsupportedValue || e.Param != tt.param || !strings.Contains(e.Message, `"`+tt.word+`"`) {
			t.Errorf("%s %s %s: got %+v; want a refusal of %q in %s", tt.f, tt.name, tt.value, e, tt.word, tt.param)
		}
	}
	_, e := outgoing(t, catalogkv.Messages, dialects[catalogkv.Messages].Policy(), format.Rules{}, with(formats[catalogkv.Messages], "speed", `"say: a secret"`))
	if e == nil || e.Code != apierr.UnsupportedValue || strings.Contains(e.Message, "secret") {
		t.Errorf("a sentence as a value: got %+v", e)
	}
}
