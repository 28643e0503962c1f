package chat

import "modelgateway/dataplane/internal/format"

// policy is the default parameter table.
var policy = format.NewPolicy(append([]format.Param{
	// The prompt.
	{Name: "model", Action: format.Replace, Types: format.String},
	{Name: "messages", Action: format.Forward, Types: format.Array, Required: true},

	// Output.
	{Name: "audio", Action: format.Forward},
	{Name: "logprobs", Action: format.Forward},
	{Name: "max_completion_tokens", Action: format.Clamp},
	{Name: "max_tokens", Action: format.Clamp},
	{Name: "modalities", Action: format.Forward},
	{Name: "n", Action: format.Forward},
	{Name: "prediction", Action: format.Forward},
	{Name: "response_format", Action: format.Forward},
	{Name: "top_logprobs", Action: format.Forward},
	{Name: "verbosity", Action: format.Forward},

	// Sampling.
	{Name: "frequency_penalty", Action: format.Forward},
	{Name: "logit_bias", Action: format.Forward},
	{Name: "presence_penalty", Action: format.Forward},
	{Name: "reasoning_effort", Action: format.Forward},
	{Name: "seed", Action: format.Forward},
	{Name: "stop", Action: format.Forward},
	{Name: "temperature", Action: format.Forward},
	{Name: "top_p", Action: format.Forward},

	// Tools. The client runs all tools of this format.
	{Name: "function_call", Action: format.Forward},
	{Name: "functions", Action: format.Forward, Types: format.Array},
	{Name: "parallel_tool_calls", Action: format.Forward},
	{Name: "tool_choice", Action: format.Forward},
	{Name: "tools", Action: format.Forward, Types: format.Array},
	// A search by the provider has a price of its own.
	{Name: "web_search_options", Action: format.Reject},

	// Streams. The gateway sends stream_options itself.
	{Name: "stream", Action: format.Forward},
	{Name: "stream_options", Action: format.Forward, Types: format.Object, Closed: true},
	{Name: "stream_options.include_usage", Action: format.Forward, Types: format.Boolean},
	{Name: "stream_options.include_obfuscation", Action: format.Forward, Types: format.Boolean},

	// Identity of the user. Hashes let a provider distinguish users without identifying them, and keep the prompt
	// caches of accounts apart.
	{Name: "cache_salt", Action: format.Replace, Types: format.String},
	{Name: "prompt_cache_key", Action: format.Replace, Types: format.String},
	{Name: "safety_identifier", Action: format.Replace, Types: format.String},
	{Name: "user", Action: format.Replace, Types: format.String},
	// Providers accept metadata only for stored answers.
	{Name: "metadata", Action: format.Drop},
	{Name: "request_id", Action: format.Drop},

	// Storage, and services in addition to the answer.
	{Name: "moderation", Action: format.Reject},
	{Name: "prompt_cache_retention", Action: format.Drop},
	{
		Name:   "service_tier",
		Action: format.Force,
		Value:  `"default"`,
		Allow:  []string{`"auto"`, `"default"`},
		Tiers:  []string{"*"},
	},
	{Name: "store", Action: format.Force, Value: `false`},
}, format.CacheOptions...)...)
