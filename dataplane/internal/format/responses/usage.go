package responses

import (
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/price"
)

// counts are the members of a usage object.
type counts struct {
	input, output, total int64
	cached, reasoning    int64
	// written is the number of tokens written to a cache, of which the other two are the numbers by lifetime.
	written, written30m, written12h int64
	calls                           int64
}

// readUsage reads a usage object; ok is false if raw is none.
func readUsage(raw []byte) (c counts, ok bool) {
	if jsonspan.KindOf(raw) != jsonspan.KindObject {
		return c, false
	}
	for name, value := range jsonspan.Members(raw) {
		switch string(name) {
		case "input_tokens":
			c.input = format.Count(value)
		case "output_tokens":
			c.output = format.Count(value)
		case "total_tokens":
			c.total = format.Count(value)
		case "input_tokens_details":
			c.readInputDetails(value)
		case "output_tokens_details":
			reasoning, _ := jsonspan.Find(value, "reasoning_tokens")
			c.reasoning = format.Count(reasoning)
		case "num_server_side_tools_used":
			c.calls = format.Count(value)
		}
	}
	return c, true
}

func (c *counts) readInputDetails(details []byte) {
	for name, value := range jsonspan.Members(details) {
		switch string(name) {
		case "cached_tokens":
			c.cached = format.Count(value)
		case "cache_write_tokens":
			c.written = format.Count(value)
		case "cache_write_tokens_details":
			short, _ := jsonspan.Find(value, "ttl_30m_tokens")
			long, _ := jsonspan.Find(value, "ttl_12h_tokens")
			c.written30m, c.written12h = format.Count(short), format.Count(long)
		}
	}
}

// usage returns disjoint quantities. Cached and written tokens are part of the input unless they exceed it. Output
// that only the total includes was left out.
func (c *counts) usage() price.Usage {
	u := price.Usage{
		Input: c.input, CachedInput: c.cached, Output: c.output, Reasoning: c.reasoning,
		// Writes without a lifetime have the shorter one.
		CacheWrite30m:      max(c.written30m, c.written-c.written12h),
		CacheWrite12h:      c.written12h,
		ServerToolRequests: c.calls,
	}
	var outside int64
	for _, part := range []int64{c.cached, u.CacheWrite30m + u.CacheWrite12h} {
		if part <= u.Input {
			u.Input -= part
		} else {
			outside += part
		}
	}
	if more := c.total - c.input - c.output - outside; more > 0 {
		u.Output += more
		u.Reasoning = max(u.Reasoning, more)
	}
	return u
}

// searchRequests reads the provider's own count of searches; ok is false if there is none.
func searchRequests(toolUsage []byte) (n int64, ok bool) {
	raw, ok := jsonspan.Find(toolUsage, "web_search", "num_requests")
	return format.Count(raw), ok
}

// toolCalls counts the calls of provider-run tools among the items of an output: all of them, and the searches.
func toolCalls(output []byte) (all, search int64) {
	it := jsonspan.ArrayAt(output, 0)
	for it.Next() {
		kind, _ := jsonspan.Find(output[it.Start():], "type")
		name, _ := jsonspan.Text(nil, kind)
		switch string(name) {
		case "web_search_call":
			search++
			all++
		case "code_interpreter_call", "file_search_call", "mcp_call":
			all++
		}
	}
	return all, search
}

// imageToolUsage reads the usage of the image tool, which is not part of the usage of the model that called it.
func imageToolUsage(toolUsage, output []byte) (second price.Secondary) {
	tool, _ := jsonspan.Find(toolUsage, "image_gen")
	for name, value := range jsonspan.Members(tool) {
		switch string(name) {
		case "input_tokens":
			second.Input = format.Count(value)
		case "input_tokens_details":
			tokens, _ := jsonspan.Find(value, "image_tokens")
			second.ImageIn = format.Count(tokens)
		case "output_tokens":
			second.Output = format.Count(value)
		case "output_tokens_details":
			tokens, _ := jsonspan.Find(value, "image_tokens")
			second.ImageOut = format.Count(tokens)
		}
	}
	it := jsonspan.ArrayAt(output, 0)
	for it.Next() {
		kind, _ := jsonspan.Find(output[it.Start():], "type")
		if string(kind) == `"image_generation_call"` {
			second.Images++
		}
	}
	if second != (price.Secondary{}) {
		second.Kind = price.ImageTool
	}
	return second
}
