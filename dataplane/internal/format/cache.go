package format

import "modelgateway/shared/price"

// CacheOptions are the rows for the parameter prompt_cache_options of the chat and the responses format. Its lifetime
// also stands at single parts, in their member prompt_cache_breakpoint.
var CacheOptions = []Param{
	{Name: "prompt_cache_options", Action: Forward, Types: Object, Closed: true},
	{Name: "prompt_cache_options.mode", Action: Forward},
	{
		Name:   "prompt_cache_options.ttl",
		Action: Forward,
		Allow:  []string{`"30m"`},
		Priced: map[string]price.Line{`"12h"`: price.CacheWrite12h},
	},
	// It fills the cache without an answer.
	{Name: "prompt_cache_options.prewarm", Action: Reject, Allow: []string{`false`}},
	// It refers to an earlier response.
	{Name: "prompt_cache_options.comparison_response_id", Action: Reject},
}

// RefusedLifetime returns the lifetime in the member prompt_cache_breakpoint of a part if it is refused, otherwise nil.
func (p *Policy) RefusedLifetime(breakpoint []byte, rules Rules) []byte {
	return p.RefusedMember("prompt_cache_options", "ttl", breakpoint, rules)
}
