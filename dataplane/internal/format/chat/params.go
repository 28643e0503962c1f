package chat

import "modelgateway/dataplane/internal/format"

// policy is the default parameter table.
var policy = format.NewPolicy(
	// The prompt.
	format.Param{Name: "model", Action: format.Replace, Types: format.String},
	format.Param{Name: "messages", Action: format.Forward, Types: format.Array, Required: true},

	// Output.
	format.Param{Name: "audio", Action: format.Forward},
	format.Param{Name: "logprobs", Action: format.Forward},
	format.Param{Name: "max_completion_tokens", Action: format.Clamp},
	format.Param{Name: "max_tokens", Action: format.Clamp},
	format.Param{Name: "modalities", Action: format.Forward},
	format.Param{Name: "n", Action: format.Forward},
	format.Param{Name: "prediction", Action: format.Forward},
	format.Param{Name: "response_format", Action: format.Forward},
	format.Param{Name: "top_logprobs", Action: format.Forward},
	format.Param{Name: "verbosity", Action: format.Forward},

	// Sampling.
	format.Param{Name: "frequency_penalty", Action: format.Forward},
	format.Param{Name: "logit_bias", Action: format.Forward},
	format.Param{Name: "presence_penalty", Action: format.Forward},
	format.Param{Name: "reasoning_effort", Action: format.Forward},
	format.Param{Name: "seed", Action: format.Forward},
	format.Param{Name: "stop", Action: format.Forward},
	format.Param{Name: "temperature", Action: format.Forward},
	format.Param{Name: "top_p", Action: format.Forward},

	// Tools. The client runs all tools of this format.
	format.Param{Name: "function_call", Action: format.Forward},
	format.Param{Name: "functions", Action: format.Forward, Types: format.Array},
	format.Param{Name: "parallel_tool_calls", Action: format.Forward},
	format.Param{Name: "tool_choice", Action: format.Forward},
	format.Param{Name: "tools", Action: format.Forward, Types: format.Array},
	// A search by the provider has a price of its own.
	format.Param{Name: "web_search_options", Action: format.Reject},

	// Streams. The gateway sends stream_options itself.
	format.Param{Name: "stream", Action: format.Forward},
	format.Param{Name: "stream_options", Action: format.Forward, Types: format.Object, Closed: true},
	format.Param{Name: "stream_options.include_usage", Action: format.Forward, Types: format.Boolean},
	format.Param{Name: "stream_options.include_obfuscation", Action: format.Forward, Types: format.Boolean},

	// Identity of the user. Hashes let a provider distinguish users without identifying them, and keep the prompt
	// caches of accounts apart.
	format.Param{Name: "cache_salt", Action: format.Replace, Types: format.String},
	format.Param{Name: "prompt_cache_key", Action: format.Replace, Types: format.String},
	format.Param{Name: "safety_identifier", Action: format.Replace, Types: format.String},
	format.Param{Name: "user", Action: format.Replace, Types: format.String},
	// Providers accept metadata only for stored answers.
	format.Param{Name: "metadata", Action: format.Drop},
	format.Param{Name: "request_id", Action: format.Drop},

	// Storage, and services in addition to the answer.
	format.Param{Name: "moderation", Action: format.Reject},
	format.Param{Name: "prompt_cache_options", Action: format.Forward},
	format.Param{Name: "prompt_cache_retention", Action: format.Drop},
	format.Param{Name: "service_tier", Action: format.Force, Value: `"default"`, Allow: []string{`"auto"`, `"default"`}},
	format.Param{Name: "store", Action: format.Force, Value: `false`},
)
