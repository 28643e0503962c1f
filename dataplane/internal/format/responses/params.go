package responses

import "modelgateway/dataplane/internal/format"

// policy is the default parameter table.
var policy = format.NewPolicy(
	// The prompt.
	format.Param{Name: "model", Action: format.Replace, Types: format.String},
	format.Param{Name: "input", Action: format.Forward, Types: format.String | format.Array},
	format.Param{Name: "instructions", Action: format.Forward},
	format.Param{Name: "image", Action: format.Forward},
	format.Param{Name: "truncation", Action: format.Forward},

	// Output.
	format.Param{Name: "include", Action: format.Forward, Types: format.Array},
	format.Param{Name: "max_output_tokens", Action: format.Clamp},
	format.Param{Name: "text", Action: format.Forward},
	format.Param{Name: "top_logprobs", Action: format.Forward},

	// Sampling. The slow mode of reasoning has a price of its own.
	format.Param{Name: "reasoning", Action: format.Forward, Types: format.Object},
	format.Param{Name: "reasoning.mode", Action: format.Forward, Deny: []string{`"pro"`}},
	format.Param{Name: "temperature", Action: format.Forward},
	format.Param{Name: "top_p", Action: format.Forward},

	// Tools. The type of each tool is checked.
	format.Param{Name: "max_tool_calls", Action: format.Clamp, Types: format.Integer},
	format.Param{Name: "parallel_tool_calls", Action: format.Forward},
	format.Param{Name: "tool_choice", Action: format.Forward, Types: format.String | format.Object},
	format.Param{Name: "tools", Action: format.Forward, Types: format.Array, Otherwise: format.Drop},

	// Streams.
	format.Param{Name: "stream", Action: format.Forward},
	format.Param{Name: "stream_options", Action: format.Forward, Types: format.Object, Closed: true},
	format.Param{Name: "stream_options.include_obfuscation", Action: format.Forward, Types: format.Boolean},

	// Identity of the user.
	format.Param{Name: "client_metadata", Action: format.Drop},
	format.Param{Name: "metadata", Action: format.Drop},
	format.Param{Name: "prompt_cache_key", Action: format.Replace, Types: format.String},
	format.Param{Name: "safety_identifier", Action: format.Replace, Types: format.String},
	format.Param{Name: "user", Action: format.Replace, Types: format.String},

	// Storage. Unlike in other formats, storing is the default.
	format.Param{Name: "background", Action: format.Reject, Allow: []string{`false`}},
	format.Param{Name: "conversation", Action: format.Reject},
	format.Param{Name: "previous_response_id", Action: format.Reject},
	format.Param{Name: "prompt", Action: format.Reject},
	format.Param{Name: "store", Action: format.Force, Value: `false`},

	// Services in addition to the answer.
	format.Param{Name: "access_programs", Action: format.Reject},
	format.Param{Name: "context_management", Action: format.Reject},
	format.Param{Name: "moderation", Action: format.Reject},
	format.Param{Name: "multi_agent", Action: format.Reject},
	format.Param{Name: "prompt_cache_options", Action: format.Forward, Types: format.Object, Closed: true},
	format.Param{Name: "prompt_cache_options.mode", Action: format.Forward},
	format.Param{Name: "prompt_cache_options.ttl", Action: format.Forward},
	format.Param{Name: "prompt_cache_retention", Action: format.Drop},
	format.Param{Name: "service_tier", Action: format.Force, Value: `"default"`, Allow: []string{`"auto"`, `"default"`}},
)
