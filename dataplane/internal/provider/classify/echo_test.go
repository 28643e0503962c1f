package classify

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// echoSlot is a place in which a provider repeats words of the client. In body, %s stands for the words, escaped as in a
// JSON string.
type echoSlot struct {
	name   string
	format string
	status int
	body   string
	// python reports whether the words are printed as Python prints a string.
	python bool
}

// echoSlots are answers about a request in which providers repeat words of the client. They are from real providers and
// servers.
var echoSlots = []echoSlot{
	{"OpenAI, value", "chat", 400, `{"error":{"message":"Invalid value: '%s'. Supported values are: 'low', 'medium', and 'high'.","type":"invalid_request_error","param":"reasoning_effort","code":"invalid_value"}}`, false},
	{"OpenAI, value without param", "chat", 400, `{"error":{"message":"Invalid value: '%s'. Supported values are: 'low', 'medium', and 'high'.","type":"invalid_request_error","param":null,"code":"invalid_value"}}`, false},
	{"OpenAI, nested name", "chat", 400, `{"error":{"message":"Unknown parameter: 'messages[0].%s'.","type":"invalid_request_error","param":"messages[0].%[1]s","code":"unknown_parameter"}}`, false},
	{"OpenAI, role", "chat", 400, `{"error":{"message":"Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}`, false},
	{"OpenAI, argument without quotation marks", "chat", 400, `{"error":{"message":"Unrecognized request argument supplied: %s","type":"invalid_request_error","param":null,"code":null}}`, false},
	{"OpenAI, name of a function", "chat", 400, `{"error":{"message":"Invalid schema for function '%s': In context=(), schema must be a JSON Schema of 'type: \"object\"'.","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}`, false},
	{"OpenAI, description of a tool", "responses", 400, `{"error":{"message":"Invalid schema for function 'f': '%s' is not of type 'boolean', 'object'.","type":"invalid_request_error","param":"tools[0].parameters","code":"invalid_function_parameters"}}`, false},
	{"OpenAI, tool choice", "responses", 400, `{"error":{"message":"Tool choice '%s' not found in 'tools' parameter.","type":"invalid_request_error","param":"tool_choice","code":null}}`, false},
	{"Anthropic, nested name", "messages", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.%s: Extra inputs are not permitted"}}`, false},
	{"Anthropic, name", "messages", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"%s: Extra inputs are not permitted"}}`, false},
	{"Anthropic, tag", "messages", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content.0: Input tag '%s' found using 'type' does not match any of the expected tags: 'document', 'image', 'text'"}}`, false},
	{"Anthropic, role", "messages", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: Unexpected role \"%s\". Allowed roles are \"user\" or \"assistant\"."}}`, false},
	{"Anthropic, name of a tool", "messages", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$', got '%s'"}}`, false},
	{"Anthropic, tool choice", "messages", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Tool '%s' not found in provided tools"}}`, false},
	{"vLLM, input", "chat", 400, `{"object":"error","message":"[{'type': 'literal_error', 'loc': ('body', 'messages', 0, 'role'), 'msg': \"Input should be 'user'\", 'input': %s}]","type":"BadRequestError","code":400}`, true},
	{"vLLM, nested name", "chat", 400, `{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'messages', 0, %s), 'msg': 'Extra inputs are not permitted', 'input': 1}]","type":"BadRequestError","param":null,"code":400}`, true},
	{"FastAPI, input and name", "chat", 422, `{"detail":[{"type":"extra_forbidden","loc":["body","messages",0,"%s"],"msg":"Extra inputs are not permitted","input":"%[1]s"}]}`, false},
	{"Mistral, input and name", "chat", 422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","messages",0,"user","%s"],"msg":"Extra inputs are not permitted","input":"%[1]s"}]},"type":"invalid_request_error","param":null,"code":null}`, false},
	{"DeepSeek, role", "chat", 422, "{\"error\":{\"message\":\"Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant `%s`, expected one of `system`, `user`, `assistant`, `tool` at line 1 column 60\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"invalid_request_error\"}}", false},
	{"Gemini, name", "chat", 400, `[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"%s\" at 'contents[0]': Cannot find field.","status":"INVALID_ARGUMENT"}}]`, false},
	{"Gemini, value", "chat", 400, `[{"error":{"code":400,"message":"Invalid value at 'contents[0].role' (TYPE_STRING), \"%s\"","status":"INVALID_ARGUMENT"}}]`, false},
	{"zod, keys", "chat", 400, `{"error":{"message":"Unrecognized key(s) in object: '%s'","code":400}}`, false},
}

// ruleWords returns texts that contain the words of each rule, by the line of the rule.
func ruleWords(t *testing.T) map[int][]string {
	t.Helper()
	lists, words := map[string][]string{}, map[int][]string{}
	alternatives := func(element string) []string {
		var all []string
		for alt := range strings.SplitSeq(strings.TrimSuffix(element, "?"), "|") {
			if name, ok := strings.CutPrefix(alt, "{"); ok {
				all = append(all, lists[strings.TrimSuffix(name, "}")]...)
			} else {
				all = append(all, strings.TrimSuffix(strings.ReplaceAll(alt, "_", " "), "*"))
			}
		}
		return all
	}
	for i, line := range strings.Split(rulesText, "\n") {
		if list, ok := strings.CutPrefix(line, "list "); ok {
			name, entries, _ := strings.Cut(list, " = ")
			for entry := range strings.SplitSeq(entries, " | ") {
				lists[name] = append(lists[name], strings.TrimSuffix(strings.TrimSpace(entry), "*"))
			}
		}
		if !strings.HasPrefix(line, "    ") {
			continue
		}
		var choices [][]string
		for term := range strings.SplitSeq(strings.TrimSpace(line), " & ") {
			field, text, hasField := strings.Cut(term, ":")
			switch {
			case strings.HasPrefix(term, "!"), hasField && field != "all" && field != "code":
				continue
			case !hasField:
				text = term
			}
			for element := range strings.FieldsSeq(text) {
				if element != ".." && element != "~" {
					choices = append(choices, alternatives(element))
				}
			}
		}
		longest := 0
		for _, c := range choices {
			longest = max(longest, len(c))
		}
		for k := range longest {
			var text []string
			for _, c := range choices {
				text = append(text, c[k%len(c)])
			}
			words[i+1] = append(words[i+1], strings.Join(text, " "))
		}
	}
	if len(words) < 300 {
		t.Fatalf("only %d rules have words", len(words))
	}
	return words
}

// Whatever words of a rule the client writes, and wherever the provider repeats them, the error is about the request, and
// has no consequences for others. The words may also end the quotation. The first words of each rule are put into every
// slot, with the ends in turn, and its other words, thousands, are spread over the slots. With LONG=1, all words are put
// into every slot with every end.
func TestWordsOfTheClientLeadToNoJudgement(t *testing.T) {
	t.Parallel()
	long := os.Getenv("LONG") != ""
	lines := map[string]int{} // of the rules, by their first words
	var others []string
	for line, texts := range ruleWords(t) {
		lines[texts[0]] = line
		others = append(others, texts[1:]...)
	}
	slices.Sort(others)
	others = slices.Compact(others)
	ends := []string{"%s", "x', %s, 'y", `x", %s, "y`}
	for i, slot := range echoSlots {
		t.Run(slot.name, func(t *testing.T) {
			t.Parallel()
			check := func(words string, line, turn int) {
				t.Helper()
				for k, end := range ends {
					if !long && k != turn%len(ends) {
						continue
					}
					a := slot.answer(t, fmt.Sprintf(end, words))
					v, _, _ := judge(&a)
					if v.Class.isJudgement() || v.Certain || v.Failover || v.KeyRejected || v.QuotaExhausted {
						t.Errorf("words of rule %d: got %s by rule %d, certain %v\n\t%s", line, v.Class, v.Rule, v.Certain, a.Body)
					}
				}
			}
			for words, line := range lines {
				check(words, line, line+i)
			}
			for k, words := range others {
				if long || k%len(echoSlots) == i {
					check(words, 0, k/len(echoSlots))
				}
			}
		})
	}
}

// answer returns the answer that repeats some words.
func (s echoSlot) answer(t *testing.T, words string) Answer {
	t.Helper()
	if s.python { // as Python prints a string
		if quote := "'"; strings.Contains(words, quote) {
			words = `"` + words + `"`
		} else {
			words = quote + words + quote
		}
	}
	escaped, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{Format: s.format, Status: s.status, Body: fmt.Appendf(nil, s.body, escaped[1:len(escaped)-1])}
}
