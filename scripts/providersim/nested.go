package providersim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// checkNested checks values below the top level (turns, content parts, tools) and parameters
// that depend on each other.
func checkNested(f Format, m members, h http.Header) *fault {
	switch f {
	case Chat:
		return firstFault(checkChatTurns(m), checkChatPairs(m), checkTools(f, m), checkMetadata(f, m))
	case Responses:
		return firstFault(checkInput(m), checkState(m), checkTools(f, m), checkMetadata(f, m))
	case Messages:
		return firstFault(checkMessageTurns(m, h), checkThinking(m), checkTools(f, m), checkCacheScopes(m, h))
	case Images:
		if m.has("partial_images") && !m.isTrue("stream") {
			return f.refused("invalid_value", "partial_images", "only possible with stream")
		}
	case Videos:
		return checkReference(m)
	}
	return nil
}

// checkCacheScopes refuses a scope of a cache breakpoint, wherever one may stand, without the beta feature that knows it.
func checkCacheScopes(m members, h http.Header) *fault {
	if enabled("prompt-caching-scope-", h) {
		return nil
	}
	for _, name := range []string{"cache_control", "system", "tools", "messages"} {
		var value any
		if json.Unmarshal(m[name], &value) != nil {
			continue
		}
		if at := findScope(map[string]any{name: value}); at != "" {
			return Messages.unknown(at)
		}
	}
	return nil
}

// findScope returns the path of a scope in a breakpoint, empty if there is none. Names in the input and in the schema of a
// tool are the client's own.
func findScope(value any) string {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			if at := findScope(item); at != "" {
				return fmt.Sprintf("%d.%s", i, at)
			}
		}
	case map[string]any:
		for name, item := range value {
			if name == "input" || name == "input_schema" {
				continue
			}
			if breakpoint, ok := item.(map[string]any); ok && name == "cache_control" && breakpoint["scope"] != nil {
				return name + ".scope"
			}
			if at := findScope(item); at != "" {
				return name + "." + at
			}
		}
	}
	return ""
}

func firstFault(faults ...*fault) *fault {
	for _, bad := range faults {
		if bad != nil {
			return bad
		}
	}
	return nil
}

// turn is an entry of messages, in chat and in the messages format.
type turn struct {
	Role         string          `json:"role"`
	Content      json.RawMessage `json:"content"`
	ToolCalls    json.RawMessage `json:"tool_calls"`
	ToolCallID   string          `json:"tool_call_id"`
	FunctionCall json.RawMessage `json:"function_call"`
	Refusal      json.RawMessage `json:"refusal"`
	Audio        json.RawMessage `json:"audio"`
}

type part struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	Citations json.RawMessage `json:"citations"`
}

var (
	chatRoles    = []string{"developer", "system", "user", "assistant", "tool", "function"}
	chatParts    = []string{"text", "image_url", "input_audio", "file", "refusal"}
	messageRoles = []string{"user", "assistant", "system"}
)

func checkChatTurns(m members) *fault {
	var turns []turn
	if json.Unmarshal(m["messages"], &turns) != nil {
		return Chat.refused("invalid_type", "messages", "every entry must be an object with a role")
	}

	for i, t := range turns {
		at := fmt.Sprintf("messages[%d]", i)
		if !slices.Contains(chatRoles, t.Role) {
			return Chat.refused("invalid_value", at+".role", "unknown role '%s'", t.Role)
		}
		if t.Role == "tool" && t.ToolCallID == "" {
			return Chat.missing(at + ".tool_call_id")
		}

		hasContent := len(t.Content) > 0 && kindOf(t.Content) != "null"
		if !hasContent {
			if t.Role == "assistant" && (t.ToolCalls != nil || t.FunctionCall != nil || t.Refusal != nil || t.Audio != nil) {
				continue
			}
			return Chat.refused("invalid_type", at+".content", "expected string or array of parts")
		}

		if bad := checkParts(Chat, at, t.Content, chatParts); bad != nil {
			return bad
		}
	}

	return nil
}

// checkParts accepts a string or a list of parts whose types are in allowed. If allowed is
// nil, it accepts all types.
func checkParts(f Format, at string, content json.RawMessage, allowed []string) *fault {
	at += ".content"
	switch kindOf(content) {
	case "string":
		return nil
	case "array":
	default:
		return f.refused("invalid_type", at, "expected string or array of parts")
	}

	var parts []part
	if json.Unmarshal(content, &parts) != nil {
		return f.refused("invalid_type", at, "every part must be an object with a type")
	}

	for i, p := range parts {
		if p.Type == "" || allowed != nil && !slices.Contains(allowed, p.Type) {
			return f.refused("invalid_value", fmt.Sprintf("%s[%d].type", at, i), "unknown part '%s'", p.Type)
		}
		if p.Type == "text" && p.Text == nil {
			return f.missing(fmt.Sprintf("%s[%d].text", at, i))
		}
	}

	return nil
}

func checkChatPairs(m members) *fault {
	limit, old := m.number("max_completion_tokens", NoLimit), m.number("max_tokens", NoLimit)
	switch {
	case limit != NoLimit && old != NoLimit && limit != old:
		return Chat.refused("invalid_parameter_combination", "max_tokens", "differs from 'max_completion_tokens'")
	case m.has("stream_options") && !m.isTrue("stream"):
		return Chat.refused("invalid_value", "stream_options", "only allowed when 'stream' is enabled")
	case m.has("top_logprobs") && !m.isTrue("logprobs"):
		return Chat.refused("invalid_value", "top_logprobs", "needs 'logprobs'")
	case m.has("metadata") && !m.isTrue("store"):
		return Chat.refused("invalid_value", "metadata", "only allowed when 'store' is enabled")
	}
	return nil
}

func checkMetadata(f Format, m members) *fault {
	var pairs map[string]string
	if json.Unmarshal(m.raw("metadata", "{}"), &pairs) != nil {
		return f.refused("invalid_type", "metadata", "values must be strings")
	}
	if len(pairs) > 16 {
		return f.refused("object_above_max_properties", "metadata", "expected at most 16 pairs, got %d", len(pairs))
	}
	return nil
}

func checkInput(m members) *fault {
	if !m.has("input") {
		if m.has("prompt") || m.has("previous_response_id") || m.has("conversation") {
			return nil
		}
		return Responses.missing("input")
	}

	if kindOf(m["input"]) == "string" {
		return nil
	}

	var items []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		ID      string          `json:"id"`
		Content json.RawMessage `json:"content"`
		// EncryptedContent is that of a reasoning item.
		EncryptedContent string `json:"encrypted_content"`
	}

	if json.Unmarshal(m["input"], &items) != nil {
		return Responses.refused("invalid_type", "input", "every item must be an object")
	}

	for i, item := range items {
		at := fmt.Sprintf("input[%d]", i)
		switch {
		case item.Type == "item_reference":
			return &fault{
				status:  http.StatusNotFound,
				kind:    "invalid_request_error",
				param:   "input",
				message: fmt.Sprintf("Item '%s' is not stored.", item.ID),
			}
		case item.Type == "reasoning" && item.ID != "" && item.EncryptedContent == "": // a reference, too
			return &fault{
				status:  http.StatusNotFound,
				kind:    "invalid_request_error",
				param:   "input",
				message: fmt.Sprintf("Item with id '%s' not found. Items are not persisted when `store` is set to false.", item.ID),
			}
		case item.Type == "" && item.Role == "":
			return Responses.refused("invalid_value", at, "has neither type nor role")
		case item.Type != "" && item.Type != "message":
			continue
		case !slices.Contains(chatRoles[:4], item.Role):
			return Responses.refused("invalid_value", at+".role", "unknown role '%s'", item.Role)
		case len(item.Content) == 0:
			return Responses.missing(at + ".content")
		}

		if bad := checkParts(Responses, at, item.Content, nil); bad != nil {
			return bad
		}
	}

	return nil
}

// checkState refuses references to stored answers, because the simulator stores none.
func checkState(m members) *fault {
	switch {
	case m.has("previous_response_id"):
		return Responses.refused("previous_response_not_found", "previous_response_id", "no such response is stored")
	case m.has("conversation"):
		return Responses.refused("conversation_not_found", "conversation", "no such conversation is stored")
	case m.has("prompt"):
		return Responses.refused("prompt_not_found", "prompt", "no such prompt is stored")
	case m.isTrue("background"):
		return Responses.refused("unsupported_parameter", "background", "not available to this account")
	case m.has("access_programs"):
		return Responses.refused("unsupported_parameter", "access_programs", "not available to this account")
	}
	return nil
}

func checkMessageTurns(m members, h http.Header) *fault {
	var turns []turn
	if json.Unmarshal(m["messages"], &turns) != nil {
		return Messages.refused("invalid_type", "messages", "every entry must be an object with a role")
	}

	newest := h.Get("Anthropic-Version") >= "2026-10-21"
	for i, t := range turns {
		at := fmt.Sprintf("messages.%d", i)
		if !slices.Contains(messageRoles, t.Role) {
			return Messages.refused("invalid_value", at+".role", "unexpected role \"%s\"", t.Role)
		}
		if len(t.Content) == 0 {
			return Messages.missing(at + ".content")
		}
		if bad := checkParts(Messages, at, t.Content, nil); bad != nil {
			return bad
		}
		if newest && kindOf(t.Content) == "array" {
			if bad := checkNewestParts(at, t); bad != nil {
				return bad
			}
		}
	}

	return nil
}

// checkNewestParts refuses parts that API version 2026-10-21 has removed.
func checkNewestParts(at string, t turn) *fault {
	var parts []part
	if err := json.Unmarshal(t.Content, &parts); err != nil {
		return Messages.refused("invalid_type", at, "every part must be an object")
	}
	for i, p := range parts {
		where := fmt.Sprintf("%s.content.%d", at, i)
		if t.Role == "assistant" && p.Type == "document" {
			return Messages.refused("invalid_value", where, "documents are not allowed in assistant messages")
		}
		cited := len(p.Citations) > 0 && kindOf(p.Citations) == "array" && string(p.Citations) != "[]"
		if t.Role == "user" && p.Type == "text" && cited {
			return Messages.refused("invalid_value", where, "citations are not allowed in user messages")
		}
	}
	return nil
}

func checkThinking(m members) *fault {
	var thinking struct {
		Type   string `json:"type"`
		Budget *int64 `json:"budget_tokens"`
	}

	if !m.has("thinking") {
		return nil
	}
	if json.Unmarshal(m["thinking"], &thinking) != nil || !slices.Contains([]string{"enabled", "adaptive", "disabled"}, thinking.Type) {
		return Messages.refused("invalid_value", "thinking", "type must be enabled, adaptive or disabled")
	}
	if thinking.Type != "enabled" {
		return nil
	}
	if thinking.Budget == nil {
		return Messages.missing("thinking.budget_tokens")
	}
	if *thinking.Budget < 1024 || *thinking.Budget >= m.number("max_tokens", 0) {
		return Messages.refused("invalid_value", "thinking.budget_tokens", "must be at least 1024 and below max_tokens")
	}

	return nil
}

func checkTools(f Format, m members) *fault {
	var tools []struct {
		Type  string `json:"type"`
		Defer bool   `json:"defer_loading"`
	}

	if json.Unmarshal(m.raw("tools", "[]"), &tools) != nil {
		return f.refused("invalid_type", "tools", "every tool must be an object")
	}

	for i, t := range tools {
		if f == Chat && t.Type != "function" && t.Type != "custom" {
			return f.refused("invalid_value", fmt.Sprintf("tools[%d].type", i), "unknown tool '%s'", t.Type)
		}
		if f == Responses && t.Type == "" {
			return f.missing(fmt.Sprintf("tools[%d].type", i))
		}
	}

	deferred, searches := false, false
	for _, t := range tools {
		deferred, searches = deferred || t.Defer, searches || strings.HasPrefix(t.Type, "tool_search")
	}

	if deferred && !searches {
		return f.refused("invalid_value", "tools", "deferred tools require a tool search")
	}

	fns := functions(f, m)
	for i, fn := range fns {
		if !toolName.MatchString(fn.name) {
			return f.refused("invalid_value", fmt.Sprintf("tools[%d].name", i), "'%s' is not a name", fn.name)
		}
	}

	name, forced := toolChoice(f, m)
	known := name == "" || slices.ContainsFunc(fns, func(fn function) bool { return fn.name == name })
	if forced && (len(tools) == 0 || !known) {
		return f.refused("invalid_value", "tool_choice", "names a tool that is not in 'tools'")
	}

	return nil
}

func checkReference(m members) *fault {
	if !m.has("input_reference") {
		return nil
	}
	var ref struct {
		ImageURL string `json:"image_url"`
		FileID   string `json:"file_id"`
	}
	if json.Unmarshal(m["input_reference"], &ref) != nil || (ref.ImageURL == "") == (ref.FileID == "") {
		return Videos.refused("invalid_value", "input_reference", "needs either image_url or file_id")
	}
	return nil
}
