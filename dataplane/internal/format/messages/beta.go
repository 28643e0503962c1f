package messages

import (
	"slices"
	"strings"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
)

// betas lists the places of a request that first-party providers take only with the name of a beta feature in the
// header anthropic-beta, and the name. The client's header is never sent: it could ask for stored conversations, another
// payer or another price.
var betas = []struct{ place, name string }{
	{"context_management", "context-management-2025-06-27"},
	{"output_config.effort", "effort-2025-11-24"},
	{"output_config.task_budget", "task-budgets-2026-03-13"},
	{"speed", "fast-mode-2026-02-01"},
	{"output_format", "structured-outputs-2025-12-15"},
	{"cache_control.scope", "prompt-caching-scope-2026-01-05"},
	// So do blocks anywhere, and tools.
	{"messages[].cache_control.scope", "prompt-caching-scope-2026-01-05"},
	// Thinking between calls of tools.
	{"thinking", "interleaved-thinking-2025-05-14"},
	{"tools[].defer_loading", "advanced-tool-use-2025-11-20"},
	{"tools[].allowed_callers", "advanced-tool-use-2025-11-20"},
	{"tools[].input_examples", "advanced-tool-use-2025-11-20"},
	{"tools[].type=memory_20250818", "context-management-2025-06-27"},
	{"tools[].type=computer_20241022", "computer-use-2024-10-22"},
	{"tools[].type=bash_20241022", "computer-use-2024-10-22"},
	{"tools[].type=text_editor_20241022", "computer-use-2024-10-22"},
	{"tools[].type=computer_20250124", "computer-use-2025-01-24"},
	{"tools[].type=computer_20251124", "computer-use-2025-11-24"},
	{"messages[].role=system", "mid-conversation-system-2026-04-07"},
	// Clients and SDKs have different names for this one.
	{"messages[].output_config", "per-turn-control-2026-07-01"},
	{"messages[].output_config", "mid-conversation-output-config-2026-07-01"},
	{"messages[].clear_at", "mid-conversation-system-clear-at-2026-08-21"},
	{"messages[].content[].type=tool_addition", "mid-conversation-tool-changes-2026-07-01"},
	{"messages[].content[].type=tool_removal", "mid-conversation-tool-changes-2026-07-01"},
}

// betasOf has the rows of betas, as bits, by their place.
var betasOf = func() map[string]uint64 {
	all := map[string]uint64{}
	for i, row := range betas {
		all[row.place] |= 1 << i
	}
	return all
}()

// beta returns the header anthropic-beta for the places of a request that the policy sends, empty for none.
func beta(r *format.Request, p *format.Policy) string {
	var names []string
	for i, row := range betas {
		top, _, _ := strings.Cut(row.place, "[]")
		top, _, _ = strings.Cut(top, ".")
		if r.Betas&(1<<i) == 0 || p.Row(top).Action != format.Forward && row.place != "speed" {
			continue
		}
		if !slices.Contains(names, row.name) {
			names = append(names, row.name)
		}
	}
	return strings.Join(names, ",")
}

// scopeBeta returns what the scope of a value of cache_control in this place needs.
func scopeBeta(place string, raw []byte) uint64 {
	if scope, ok := jsonspan.Find(raw, "scope"); ok && jsonspan.KindOf(scope) != jsonspan.KindNull {
		return betasOf[place+".scope"]
	}
	return 0
}

// readBetas finds the places of betas outside of the list of messages.
func readBetas(r *format.Request) {
	for _, name := range []string{"context_management", "output_format"} {
		if r.Value(name) != nil {
			r.Betas |= betasOf[name]
		}
	}

	if r.Text("speed") == format.FastTier {
		r.Betas |= betasOf["speed"]
	}

	r.Betas |= scopeBeta("cache_control", r.Value("cache_control"))
	for name, value := range jsonspan.Members(r.Value("output_config")) {
		if need := betasOf["output_config."+string(name)]; need != 0 && jsonspan.KindOf(value) != jsonspan.KindNull {
			r.Betas |= need
		}
	}

	it := jsonspan.ArrayAt(r.Value("tools"), 0)
	for it.Next() {
		if it.Index() == 0 && jsonspan.FindText(r.Value("thinking"), "type") == "enabled" {
			r.Betas |= betasOf["thinking"]
		}
		for name, value := range jsonspan.Members(it.Value()) {
			switch string(name) {
			case "type":
				kind, _ := jsonspan.Text(nil, value)
				r.Betas |= betasOf["tools[].type="+string(kind)]
			case "defer_loading", "allowed_callers", "input_examples":
				if kind := jsonspan.KindOf(value); kind != jsonspan.KindNull && kind != jsonspan.KindFalse {
					r.Betas |= betasOf["tools[]."+string(name)]
				}
			}
		}
	}
}
