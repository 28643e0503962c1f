package messages

import (
	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/price"
)

// policy is the default parameter table.
var policy = format.NewPolicy(
	// The prompt.
	format.Param{Name: "model", Action: format.Replace, Types: format.String},
	format.Param{
		Name:     "messages",
		Action:   format.Forward,
		Types:    format.Array,
		Required: true,
	},
	format.Param{Name: "system", Action: format.Forward, Types: format.String | format.Array},

	// Output.
	format.Param{Name: "max_tokens", Action: format.Clamp, Required: true},
	format.Param{Name: "output_config", Action: format.Forward},
	format.Param{Name: "output_format", Action: format.Forward},

	// Sampling.
	format.Param{Name: "stop_sequences", Action: format.Forward},
	format.Param{Name: "temperature", Action: format.Forward},
	format.Param{Name: "thinking", Action: format.Forward},
	format.Param{Name: "top_k", Action: format.Forward},
	format.Param{Name: "top_p", Action: format.Forward},

	// Tools. The type of each tool is checked.
	format.Param{Name: "tool_choice", Action: format.Forward},
	format.Param{
		Name:      "tools",
		Action:    format.Forward,
		Types:     format.Array,
		Otherwise: format.Drop,
	},
	format.Param{Name: "mcp_servers", Action: format.Reject},

	format.Param{Name: "stream", Action: format.Forward},

	// Identity of the user: the member user_id is replaced, and nothing else is sent.
	format.Param{Name: "metadata", Action: format.Replace, Types: format.Object},

	// Storage.
	format.Param{Name: "container", Action: format.Reject},
	format.Param{Name: "diagnostics", Action: format.Reject, Allow: []string{`{"previous_message_id":null}`, `{}`}},
	format.Param{Name: "fallback_credit_token", Action: format.Reject},
	format.Param{
		// With these details the official tool runners continue without a thread.
		Name: "thread", Action: format.Reject,
		Details: `{"error_code":"thread_unsupported_request","unsupported":["thread"]}`,
	},

	// The provider's own users and workspaces.
	format.Param{Name: "user_profile_id", Action: format.Reject},
	format.Param{Name: "workspace_id", Action: format.Reject},

	// Services in addition to the answer, or at another price.
	format.Param{Name: "billing_policy", Action: format.Reject},
	format.Param{Name: "cache_control", Action: format.Forward},
	// Blocks and tools have the same member.
	format.Param{
		Name:   "cache_control.ttl",
		Action: format.Forward,
		Allow:  []string{`"5m"`},
		Priced: map[string]price.Line{`"1h"`: price.CacheWrite1h},
	},
	format.Param{Name: "compaction", Action: format.Reject},
	format.Param{Name: "context_management", Action: format.Forward, Types: format.Object},
	format.Param{Name: "fallbacks", Action: format.Reject},
	format.Param{Name: "inference_geo", Action: format.Reject, Allow: []string{`"global"`}},
	format.Param{
		Name:   "service_tier",
		Action: format.Force,
		Value:  `"standard_only"`,
		Allow:  []string{`"auto"`, `"standard_only"`},
		Tiers:  []string{"auto"},
	},
	format.Param{
		Name:   "speed",
		Action: format.Reject,
		Allow:  []string{`"standard"`},
		Tiers:  []string{format.FastTier},
	},
)
