package responses

import "modelgateway/dataplane/internal/format"

// nothingStored is the hint of refusals of what would need data at the provider.
const nothingStored = "Nothing is stored between requests. Send the items themselves, and set \"store\" to false."

// policy is the default parameter table.
var policy = format.NewPolicy(append([]format.Param{
	// The prompt.
	{Name: "model", Action: format.Replace, Types: format.String},
	{Name: "input", Action: format.Forward, Types: format.String | format.Array},
	{Name: "instructions", Action: format.Forward},
	{Name: "image", Action: format.Forward},
	{Name: "truncation", Action: format.Forward},

	// Output.
	{Name: "include", Action: format.Forward, Types: format.Array},
	{Name: "max_output_tokens", Action: format.Clamp},
	{Name: "text", Action: format.Forward},
	{Name: "top_logprobs", Action: format.Forward},

	// Sampling. The slow mode of reasoning has a price of its own.
	{Name: "reasoning", Action: format.Forward, Types: format.Object},
	{Name: "reasoning.mode", Action: format.Forward, Deny: []string{`"pro"`}},
	{Name: "temperature", Action: format.Forward},
	{Name: "top_p", Action: format.Forward},

	// Tools. The type of each tool is checked.
	{Name: "max_tool_calls", Action: format.Clamp, Types: format.Integer},
	{Name: "parallel_tool_calls", Action: format.Forward},
	{Name: "tool_choice", Action: format.Forward, Types: format.String | format.Object},
	{Name: "tools", Action: format.Forward, Types: format.Array, Otherwise: format.Drop},

	// Streams.
	{Name: "stream", Action: format.Forward},
	{Name: "stream_options", Action: format.Forward, Types: format.Object, Closed: true},
	{Name: "stream_options.include_obfuscation", Action: format.Forward, Types: format.Boolean},

	// Identity of the user.
	{Name: "client_metadata", Action: format.Drop},
	{Name: "metadata", Action: format.Drop},
	{Name: "prompt_cache_key", Action: format.Replace, Types: format.String},
	{Name: "safety_identifier", Action: format.Replace, Types: format.String},
	{Name: "user", Action: format.Replace, Types: format.String},

	// Storage. Unlike in other formats, storing is the default.
	{Name: "background", Action: format.Reject, Allow: []string{`false`}, Hint: nothingStored},
	{Name: "background_options", Action: format.Reject, Hint: nothingStored},
	{Name: "conversation", Action: format.Reject, Hint: nothingStored},
	{Name: "previous_response_id", Action: format.Reject, Hint: nothingStored},
	{Name: "prompt", Action: format.Reject, Hint: nothingStored},
	{Name: "store", Action: format.Force, Value: `false`},

	// Services in addition to the answer.
	{Name: "access_programs", Action: format.Reject, Allow: []string{`{"cyber":"standard"}`}},
	{Name: "context_management", Action: format.Reject},
	{Name: "moderation", Action: format.Reject},
	{Name: "multi_agent", Action: format.Reject},
	{Name: "prompt_cache_retention", Action: format.Drop},
	{
		Name:   "service_tier",
		Action: format.Force,
		Value:  `"default"`,
		Allow:  []string{`"auto"`, `"default"`},
		Tiers:  []string{"*"},
	},
}, format.CacheOptions...)...)
