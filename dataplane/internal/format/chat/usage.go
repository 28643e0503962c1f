package chat

import (
	"bytes"

	"modelgateway/dataplane/internal/jsonspan"
)

// recordUsage reads usage from the first member that has it. found reports whether one has.
func (a *reader) recordUsage(p *chunkParts) (found bool) {
	found, readable := a.Report(p.usage)
	if !found && p.groq != nil {
		raw, _ := jsonspan.Find(p.groq, "usage")
		found, readable = a.Report(raw)
	}
	if !found && p.choices.count > 0 && bytes.Contains(p.list, []byte(`"usage"`)) {
		raw, _ := jsonspan.Find(p.list, "0", "usage")
		found, readable = a.Report(raw)
	}
	if !found && !a.Reported && p.timings != nil {
		found, readable = a.ReportTimings(p.timings)
	}
	if found && readable {
		a.Total, a.Ambiguous = a.Counts.Inside()
		a.Reported = true
	}
	return found
}
