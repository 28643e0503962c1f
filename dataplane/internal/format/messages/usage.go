package messages

import (
	"bytes"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/price"
)

// report updates the totals from a usage object. ok is false if there are no counts, or none that can be read.
func (a *reader) report(raw []byte) (ok bool) {
	iterations := a.iterations
	for name, value := range jsonspan.Members(raw) {
		switch string(name) {
		case "service_tier":
			a.SetServiceTier(value)
		case "speed":
			a.SetSpeed(value)
		}
		if string(name) != "iterations" || jsonspan.KindOf(value) == jsonspan.KindNull {
			continue
		}
		if iterations, ok = iterationUsage(value); !ok {
			a.Unreadable = true
			return false
		}
	}
	if a.Report(raw) < answer.Placeholder {
		return false
	}
	a.iterations = iterations
	return true
}

// iterationUsage adds up the usage of the iterations that wrote a summary and of those of an advisor. The totals
// include all other iterations. ok is false if one cannot be read.
func iterationUsage(raw []byte) (sum price.Usage, ok bool) {
	for iteration := range jsonspan.Elements(raw) {
		kind, _ := jsonspan.Find(iteration, "type")
		name, _ := jsonspan.Text(nil, kind)
		if string(name) != "advisor_message" && string(name) != "compaction" {
			continue
		}

		c, _, readable := usagereport.Read(iteration)
		if !readable {
			return sum, false
		}

		u := c.Beside(false)
		if string(name) == "advisor_message" {
			addAdvisor(&sum.Secondary, u, iteration)
			continue
		}

		sum.Input += u.Input
		sum.CachedInput += u.CachedInput
		sum.CacheWrite5m += u.CacheWrite5m
		sum.CacheWrite1h += u.CacheWrite1h
		sum.Output += u.Output
	}
	return sum, true
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

// usage returns the usage of the totals so far.
func (a *reader) usage() price.Usage {
	u := a.Counts.Beside(a.oneHourCache)
	u.Input += a.iterations.Input
	u.CachedInput += a.iterations.CachedInput
	u.CacheWrite5m += a.iterations.CacheWrite5m
	u.CacheWrite1h += a.iterations.CacheWrite1h
	u.Output += a.iterations.Output
	u.Secondary = a.iterations.Secondary
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
