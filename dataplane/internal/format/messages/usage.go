package messages

import (
	"bytes"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/price"
)

// counts are the totals so far. Each member of a later report replaces the earlier value. Sums or maxima would be
// wrong: the input grows while a provider runs tools and shrinks when it summarises.
type counts struct {
	input, cached, output, thinking int64
	// written is the total of cache writes; its split into lifetimes may come from an older report.
	written, written5m, written1h int64
	calls                         int64
	// iterations is the usage of summaries and advisors, which the totals do not include.
	iterations price.Usage
}

// read updates the totals from a usage object; ok is false if raw is none.
func (c *counts) read(raw []byte) (ok bool) {
	for name, value := range jsonspan.Members(raw) {
		if jsonspan.KindOf(value) != jsonspan.KindNull {
			c.set(string(name), value)
		}
	}
	return jsonspan.KindOf(raw) == jsonspan.KindObject
}

func (c *counts) set(name string, value []byte) {
	switch name {
	case "input_tokens":
		c.input = format.Count(value)
	case "cache_read_input_tokens":
		c.cached = format.Count(value)
	case "cache_creation_input_tokens":
		c.written = format.Count(value)
	case "cache_creation":
		short, _ := jsonspan.Find(value, "ephemeral_5m_input_tokens")
		long, _ := jsonspan.Find(value, "ephemeral_1h_input_tokens")
		c.written5m, c.written1h = format.Count(short), format.Count(long)
		c.written = max(c.written, c.written5m+c.written1h)
	case "output_tokens":
		c.output = format.Count(value)
	case "output_tokens_details":
		thinking, _ := jsonspan.Find(value, "thinking_tokens")
		c.thinking = format.Count(thinking)
	case "server_tool_use":
		searches, _ := jsonspan.Find(value, "web_search_requests")
		c.calls = format.Count(searches)
	case "iterations":
		c.iterations = iterationUsage(value)
	}
}

// iterationUsage adds up the usage of the iterations that wrote a summary and of those of an advisor. The totals
// include all other iterations.
func iterationUsage(raw []byte) (sum price.Usage) {
	for iteration := range jsonspan.Elements(raw) {
		kind, _ := jsonspan.Find(iteration, "type")
		name, _ := jsonspan.Text(nil, kind)
		var c counts
		switch string(name) {
		case "advisor_message":
			c.read(iteration)
			addAdvisor(&sum.Secondary, c.usage(false), iteration)
			continue
		case "compaction":
			c.read(iteration)
		default:
			continue
		}
		u := c.usage(false)
		sum.Input += u.Input
		sum.CachedInput += u.CachedInput
		sum.CacheWrite5m += u.CacheWrite5m
		sum.CacheWrite1h += u.CacheWrite1h
		sum.Output += u.Output
	}
	return sum
}

// addAdvisor adds one iteration of an advisor.
func addAdvisor(second *price.Secondary, u price.Usage, iteration []byte) {
	raw, _ := jsonspan.Find(iteration, "model")
	model, _ := jsonspan.Text(nil, raw)
	second.Kind, second.Model = price.Advisor, format.Label(model)
	second.Input += u.Input
	second.CachedInput += u.CachedInput
	second.CacheWrite5m += u.CacheWrite5m
	second.CacheWrite1h += u.CacheWrite1h
	second.Output += u.Output
	second.Reasoning += u.Reasoning
}

// usage returns the normalised usage. hourly reports whether cache writes that the split does not cover are for one
// hour.
func (c *counts) usage(hourly bool) price.Usage {
	short, long := c.written5m, c.written1h
	switch more := c.written - short - long; {
	case more < 0: // the total is newer than its split
		long = min(long, c.written)
		short = c.written - long
	case hourly:
		long += more
	default:
		short += more
	}
	u := c.iterations
	u.Input += c.input
	u.CachedInput += c.cached
	u.CacheWrite5m += short
	u.CacheWrite1h += long
	u.Output += c.output
	u.Reasoning = c.thinking
	u.ServerToolRequests = c.calls
	return u
}

// usesOneHourCache reports whether the request marks parts of its prompt for a cache, all of them for one hour.
func usesOneHourCache(r *format.Request) bool {
	if r == nil {
		return false
	}
	const mark = `"cache_control"`
	marked := false
	for _, name := range []string{"cache_control", "system", "messages", "tools"} {
		raw := r.Value(name)
		if name == "cache_control" && raw != nil {
			if !isOneHour(raw) {
				return false
			}
			marked = true
			continue
		}
		for {
			i := bytes.Index(raw, []byte(mark))
			if i < 0 {
				break
			}
			raw = bytes.TrimLeft(raw[i+len(mark):], " \t\r\n:")
			if jsonspan.KindOf(raw) != jsonspan.KindObject {
				continue
			}
			if !isOneHour(raw) {
				return false
			}
			marked = true
		}
	}
	return marked
}

func isOneHour(mark []byte) bool {
	ttl, _ := jsonspan.Find(mark, "ttl")
	return string(ttl) == `"1h"`
}
