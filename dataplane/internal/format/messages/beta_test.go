package messages

import (
	"slices"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/catalogkv"
)

func TestForwardedMembersNameTheBetaFeaturesTheyNeed(t *testing.T) {
	t.Parallel()
	drop := policy.With(catalogkv.Params{"context_management": {Policy: "drop"}})
	const scope = "prompt-caching-scope-2026-01-05"
	tests := []struct {
		add    string
		policy *format.Policy
		want   string
	}{
		{`"tools":[{"name":"f"}],"thinking":{"type":"adaptive"}`, policy, ""},
		{`"tools":[{"name":"f"}],"thinking":{"type":"enabled","budget_tokens":1024}`, policy, "interleaved-thinking-2025-05-14"},
		{`"thinking":{"type":"enabled","budget_tokens":1024}`, policy, ""},
		{`"context_management":{"edits":[]}`, policy, "context-management-2025-06-27"},
		{`"context_management":{"edits":[]}`, drop, ""},
		{`"context_management":null,"output_config":{"effort":null}`, policy, ""},
		{`"output_config":{"effort":"high","format":{}}`, policy, "effort-2025-11-24"},
		{`"output_config":{"task_budget":{"type":"tokens","total":20000}}`, policy, "task-budgets-2026-03-13"},
		{`"tools":[{"name":"f"},{"name":"g","defer_loading":true},{"name":"h","defer_loading":true}]`, policy, "advanced-tool-use-2025-11-20"},
		{`"tools":[{"name":"g","defer_loading":false}]`, policy, ""},
		{`"tools":[{"type":"computer_20250124"},{"type":"memory_20250818"}],"context_management":{}`, policy, "context-management-2025-06-27,computer-use-2025-01-24"},
		{
			`"messages":[{"role":"system","output_config":{"effort":"low"}},{"role":"user","content":[{"type":"tool_removal","tool":{"type":"tool_reference","name":"f"}}]}]`, policy,
			"mid-conversation-system-2026-04-07,per-turn-control-2026-07-01,mid-conversation-output-config-2026-07-01,mid-conversation-tool-changes-2026-07-01",
		},
		{`"output_format":{"type":"json_schema"}`, policy, "structured-outputs-2025-12-15"},
		{`"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","scope":"global"}}]`, policy, scope},
		{`"cache_control":{"type":"ephemeral","scope":"global"}`, policy, scope},
		{`"cache_control":{"type":"ephemeral","scope":"global"}`, policy.With(catalogkv.Params{"cache_control": {Policy: "drop"}}), ""},
		{`"cache_control":{"type":"ephemeral","scope":null}`, policy, ""},
		{`"tools":[{"name":"f","cache_control":{"type":"ephemeral","ttl":"5m","scope":"global"}}]`, policy, scope},
		{`"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"x","cache_control":{"scope":"global"}}]}]}]`, policy, scope},
		{`"messages":[{"role":"user","content":"scope"}],"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]`, policy, ""},
		{`"messages":[{"role":"user","content":"output_config"},{"role":"assistant","content":[{"type":"tool_use","input":{"type":"tool_addition"}}]}]`, policy, ""},
	}
	for _, tt := range tests {
		body := `{"model":"m","max_tokens":9,` + tt.add
		if !strings.Contains(tt.add, `"messages"`) {
			body += `,"messages":[{"role":"user","content":"x"}]`
		}
		var obj jsonspan.Object
		if err := obj.Parse([]byte(body + "}")); err != nil {
			t.Fatal(err)
		}
		r, e := Dialect{}.Read(&obj)
		if e != nil {
			t.Fatal(e)
		}
		if e := r.Check(tt.policy, format.Rules{}); e != nil {
			t.Fatalf("%s: %v", tt.add, e)
		}
		if got := r.Beta(tt.policy); got != tt.want {
			t.Errorf("%s: got %q; want %q", tt.add, got, tt.want)
		}
		r.Release()
	}
}

// Some beta features store conversations, let others pay or change the price. That of the fast mode does so, too, but a request
// for it is refused unless the model has prices for it.
func TestNoBetaFeatureChangesStateOrPrice(t *testing.T) {
	t.Parallel()
	never := []string{
		"message-threads", "server-side-fallback", "fallback-credit", "advisor-tool", "mcp-", "files-api", "skills", "code-execution", "user-profiles", "managed-agents",
		"oauth", "context-1m", "output-300k", "compact",
	}
	for _, row := range betas {
		if slices.ContainsFunc(never, func(prefix string) bool { return strings.HasPrefix(row.name, prefix) }) {
			t.Errorf("%s needs %s", row.place, row.name)
		}
	}
}
