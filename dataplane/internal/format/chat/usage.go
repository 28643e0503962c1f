package chat

import (
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/price"
)

// counts are the members of a usage object under the many names and in the many places that providers of this format
// use.
type counts struct {
	prompt, completion, total int64
	// cached is the largest of the members that have this count: some providers report it twice, and one of the two
	// may be zero.
	cached int64
	// cacheWrites is cache_write_tokens; created is the count of providers whose caches keep entries for five minutes.
	cacheWrites, created int64
	audioIn, imageIn     int64
	audioOut, reasoning  int64
	calls                int64
	// isReseller reports whether the provider passes requests on to other providers, whose caches keep entries for an
	// unknown time.
	isReseller bool
}

// readUsage normalises a usage object; ok is false if raw is none.
func readUsage(raw []byte) (u price.Usage, ok bool) {
	if jsonspan.KindOf(raw) != jsonspan.KindObject {
		return u, false
	}
	var c counts
	for name, value := range jsonspan.Members(raw) {
		c.read(string(name), value)
	}
	return c.usage(), true
}

// read reads one member of the usage object.
func (c *counts) read(name string, value []byte) {
	switch name {
	case "prompt_tokens":
		c.prompt = format.Count(value)
	case "completion_tokens":
		c.completion = format.Count(value)
	case "total_tokens":
		c.total = format.Count(value)
	case "prompt_tokens_details", "prompt_token_details":
		for name, value := range jsonspan.Members(value) {
			c.readPromptDetails(string(name), value)
		}
	case "completion_tokens_details":
		for name, value := range jsonspan.Members(value) {
			c.readCompletionDetails(string(name), value)
		}
	case "cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens":
		c.cached = max(c.cached, format.Count(value))
	case "cache_creation_input_tokens":
		c.created = max(c.created, format.Count(value))
	case "reasoning_tokens":
		c.reasoning = max(c.reasoning, format.Count(value))
	case "image_tokens":
		c.imageIn = max(c.imageIn, format.Count(value))
	case "num_sources_used", "num_search_queries":
		c.calls = max(c.calls, format.Count(value))
	case "server_tool_use", "server_tool_use_details":
		searches, _ := jsonspan.Find(value, "web_search_requests")
		c.calls = max(c.calls, format.Count(searches))
	case "cost", "is_byok":
		c.isReseller = true
	}
}

func (c *counts) readPromptDetails(name string, value []byte) {
	switch name {
	case "cached_tokens":
		c.cached = max(c.cached, format.Count(value))
	case "cache_write_tokens":
		c.cacheWrites = format.Count(value)
	case "cache_creation_input_tokens":
		c.created = max(c.created, format.Count(value))
	case "audio_tokens":
		c.audioIn = format.Count(value)
	case "image_tokens":
		c.imageIn = max(c.imageIn, format.Count(value))
	}
}

func (c *counts) readCompletionDetails(name string, value []byte) {
	switch name {
	case "reasoning_tokens":
		c.reasoning = max(c.reasoning, format.Count(value))
	case "audio_tokens":
		c.audioOut = format.Count(value)
	}
}

// usage returns disjoint quantities. Cached and written tokens are part of the prompt unless they exceed it. Output
// that only the total includes is reasoning that was left out.
func (c *counts) usage() price.Usage {
	u := price.Usage{
		Input: c.prompt, CachedInput: c.cached, CacheWrite5m: c.created,
		Output: c.completion, Reasoning: c.reasoning,
		AudioIn: c.audioIn, ImageIn: c.imageIn, AudioOut: c.audioOut,
		ServerToolRequests: c.calls,
	}
	if c.isReseller {
		u.CacheWriteOther = c.cacheWrites
	} else {
		u.CacheWrite30m = c.cacheWrites
	}
	var outside int64
	for _, part := range []int64{c.cached, c.cacheWrites, c.created} {
		if part <= u.Input {
			u.Input -= part
		} else {
			outside += part
		}
	}
	if more := c.total - c.prompt - c.completion - outside; more > 0 {
		u.Output += more
		u.Reasoning = max(u.Reasoning, more)
	}
	return u
}

// readTimings reads the counts of servers that have no usage object.
func readTimings(raw []byte) (u price.Usage, ok bool) {
	for name, value := range jsonspan.Members(raw) {
		switch string(name) {
		case "prompt_n":
			u.Input, ok = format.Count(value), true
		case "cache_n":
			u.CachedInput = format.Count(value)
		case "predicted_n":
			u.Output = format.Count(value)
		}
	}
	return u, ok
}
