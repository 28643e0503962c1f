// Package usagereport decides what a provider's report of usage means. Providers report the same counts under many names
// and in many places, as numbers and as text, inside other counts or beside them; one place reads them for all formats, so
// that a usage costs the same in each of them and whether it is streamed or not.
package usagereport

import "modelgateway/dataplane/internal/jsonspan"

// Counts are the counts of a usage object, under whatever names they came.
type Counts struct {
	// Input, Output and Total are what the report says about the whole.
	Input, Output, Total int64
	// cached are the tokens read from a cache, missed those that were not. cachedAudio and cachedImage are parts of cached.
	cached, missed, cachedAudio, cachedImage int64
	// written are tokens written to a cache of the providers of the OpenAI formats, of which written30m and written12h are
	// those with these lifetimes; created are those of the messages format and its relatives, whose lifetimes are created5m
	// and created1h.
	written, written30m, written12h int64
	created, created5m, created1h   int64
	// searched are further input tokens, of pages that the provider has read for the request.
	searched int64
	// reasoning, audioOut and imageOut are parts of the output, or beside it.
	reasoning, audioOut, imageOut int64
	audioIn, imageIn              int64
	// calls are the calls of tools of the provider, sources the number of pages that it has used.
	calls, sources int64
	// statesOutput, statesCalls and statesImageOut report whether the report has these counts, even if they are zero.
	statesOutput, statesCalls, statesImageOut bool
	// isReseller reports whether the provider passes requests on to other providers, whose caches keep entries for an
	// unknown time.
	isReseller bool
	// hidden is the part of the output that only the total has, as the last reading of the report says.
	hidden int64
	// known reports whether there is any count, unreadable whether a count could not be read.
	known, unreadable bool
}

// Read reads a usage object. found is false if raw is none, or has no count. If one of the counts cannot be read,
// readable is false and the report says nothing: its other counts may be parts of that one.
func Read(raw []byte) (c Counts, found, readable bool) {
	for name, value := range jsonspan.Members(raw) {
		c.member(string(name), value)
	}
	c.created = max(c.created, c.created5m+c.created1h)
	return c, c.known || c.unreadable, !c.unreadable
}

// StatesOutput reports whether the report has a count of the output, even if it is zero.
func (c *Counts) StatesOutput() bool { return c.statesOutput }

// Hidden returns the part of the output that only the total of the report has.
func (c *Counts) Hidden() int64 { return c.hidden }

// ForgetOutput removes the counts of the output, which are placeholders at the begin of an answer.
func (c *Counts) ForgetOutput() { c.Output, c.reasoning, c.statesOutput = 0, 0, false }

// Update takes over the counts of a later report about the same answer. A count replaces the earlier one: sums or maxima
// would be wrong, because the input grows while a provider runs tools and shrinks when it summarises. A zero does not:
// some providers send placeholders after the counts. The total is that of the later report even if it has none, because
// the earlier one does not cover what the others have grown by.
func (c *Counts) Update(later *Counts) {
	if later.Input > 0 || later.Output > 0 {
		c.Total = 0
	}

	replace := func(to *int64, n int64) {
		if n > 0 {
			*to = n
		}
	}
	replace(&c.Input, later.Input)
	replace(&c.Output, later.Output)
	replace(&c.Total, later.Total)
	replace(&c.cached, later.cached)
	replace(&c.missed, later.missed)
	replace(&c.cachedAudio, later.cachedAudio)
	replace(&c.cachedImage, later.cachedImage)
	replace(&c.written, later.written)
	if later.written30m > 0 || later.written12h > 0 {
		c.written30m, c.written12h = later.written30m, later.written12h
	}

	replace(&c.created, later.created)
	if later.created5m > 0 || later.created1h > 0 {
		c.created5m, c.created1h = later.created5m, later.created1h
	}

	replace(&c.searched, later.searched)
	replace(&c.reasoning, later.reasoning)
	replace(&c.audioOut, later.audioOut)
	replace(&c.imageOut, later.imageOut)
	replace(&c.audioIn, later.audioIn)
	replace(&c.imageIn, later.imageIn)
	replace(&c.calls, later.calls)
	replace(&c.sources, later.sources)
	c.statesOutput = c.statesOutput || later.statesOutput
	c.statesCalls = c.statesCalls || later.statesCalls
	c.statesImageOut = c.statesImageOut || later.statesImageOut
	c.isReseller = c.isReseller || later.isReseller
}

// ReadTimings reads the counts of servers that have no usage object; the results are those of Read.
func ReadTimings(raw []byte) (c Counts, found, readable bool) {
	for name, value := range jsonspan.Members(raw) {
		switch string(name) {
		case "prompt_n":
			c.take(&c.Input, value)
		case "cache_n":
			c.take(&c.cached, value)
		case "predicted_n":
			c.take(&c.Output, value)
		}
	}
	c.Input += c.cached // which prompt_n leaves out
	return c, c.known || c.unreadable, !c.unreadable
}

// take reads one count. A provider that uses several names for one count may have left some of them at zero.
func (c *Counts) take(to *int64, raw []byte) {
	n, ok := Count(raw)
	switch {
	case !ok:
		c.unreadable = true
	case len(raw) > 0 && jsonspan.KindOf(raw) != jsonspan.KindNull:
		c.known = true
		*to = max(*to, n)
	}
}

// find is take for a count within an object.
func (c *Counts) find(to *int64, raw []byte, path ...string) {
	value, _ := jsonspan.Find(raw, path...)
	c.take(to, value)
}

// member reads one member of the usage object.
func (c *Counts) member(name string, value []byte) {
	switch name {
	case "prompt_tokens", "input_tokens", "promptTokenCount", "promptTokens", "inputTokens", "inputTokenCount":
		c.take(&c.Input, value)
	case "completion_tokens", "output_tokens", "candidatesTokenCount", "completionTokens", "outputTokens", "outputTokenCount":
		c.take(&c.Output, value)
		c.statesOutput = c.statesOutput || jsonspan.KindOf(value) != jsonspan.KindNull
	case "total_tokens", "totalTokenCount", "totalTokens":
		if n, ok := Count(value); ok { // without one that can be read, the parts say enough
			c.known, c.Total = c.known || len(value) > 0 && jsonspan.KindOf(value) != jsonspan.KindNull, max(c.Total, n)
		}
	case "prompt_tokens_details", "prompt_token_details", "input_tokens_details", "input_token_details":
		for name, value := range jsonspan.Members(value) {
			c.inputDetail(string(name), value)
		}
	case "completion_tokens_details", "completion_token_details", "output_tokens_details", "output_token_details":
		for name, value := range jsonspan.Members(value) {
			c.outputDetail(string(name), value)
		}
	case "reasoning_tokens", "thoughtsTokenCount":
		c.take(&c.reasoning, value)
	case "image_tokens":
		c.take(&c.imageIn, value)
	case "citation_tokens", "toolUsePromptTokenCount":
		c.take(&c.searched, value)
	case "num_sources_used":
		c.take(&c.sources, value)
	case "num_server_side_tools_used", "num_search_queries":
		c.take(&c.calls, value)
		c.statesCalls = true
	case "server_tool_use", "server_tool_use_details":
		c.find(&c.calls, value, "web_search_requests")
	case "plugins":
		c.find(&c.calls, value, "search", "count")
	case "cost", "is_byok":
		c.isReseller = true
	default:
		c.cache(name, value)
	}
}

func (c *Counts) inputDetail(name string, value []byte) {
	switch name {
	case "audio_tokens":
		c.take(&c.audioIn, value)
	case "image_tokens":
		c.take(&c.imageIn, value)
	case "cached_tokens_details":
		c.find(&c.cachedAudio, value, "audio_tokens")
		c.find(&c.cachedImage, value, "image_tokens")
	default:
		c.cache(name, value)
	}
}

func (c *Counts) outputDetail(name string, value []byte) {
	switch name {
	case "reasoning_tokens", "thinking_tokens":
		c.take(&c.reasoning, value)
	case "audio_tokens":
		c.take(&c.audioOut, value)
	case "image_tokens":
		c.take(&c.imageOut, value)
		c.statesImageOut = true
	}
}

// cache reads a count of a cache, which some providers report beside the whole and others among its details.
func (c *Counts) cache(name string, value []byte) {
	switch name {
	case "cached_tokens",
		"num_cached_tokens",
		"prompt_cache_hit_tokens",
		"cache_read_input_tokens",
		"cache_read_tokens",
		"cachedContentTokenCount":
		c.take(&c.cached, value)
	case "prompt_cache_miss_tokens":
		c.take(&c.missed, value)
	case "cache_write_tokens":
		c.take(&c.written, value)
	case "cache_write_tokens_details":
		c.find(&c.written30m, value, "ttl_30m_tokens")
		c.find(&c.written12h, value, "ttl_12h_tokens")
	case "cache_creation_input_tokens",
		"cache_creation_tokens",
		"cached_creation_tokens",
		"prompt_cache_write_tokens",
		"cache_write_input_tokens":
		c.take(&c.created, value)
	case "cache_creation":
		c.find(&c.created5m, value, "ephemeral_5m_input_tokens")
		c.find(&c.created1h, value, "ephemeral_1h_input_tokens")
	}
}
