package chat

import (
	"bytes"

	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
)

// recordUsage reads usage from the first member that has it.
func (a *reader) recordUsage(p *chunkParts) answer.Found {
	found := a.Report(p.usage)
	if found == answer.Nothing && p.groq != nil {
		raw, _ := jsonspan.Find(p.groq, "usage")
		found = a.Report(raw)
	}

	if found == answer.Nothing && p.choices.count > 0 && bytes.Contains(p.list, []byte(`"usage"`)) {
		raw, _ := jsonspan.Find(p.list, "0", "usage")
		found = a.Report(raw)
	}

	if found == answer.Nothing && !a.Reported && p.timings != nil {
		found = a.ReportTimings(p.timings)
	}

	if found >= answer.Placeholder {
		a.Total, a.Ambiguous = a.Counts.Inside()
		a.Reported = true
	}

	return found
}
