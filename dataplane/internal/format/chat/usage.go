package chat

import "modelgateway/dataplane/internal/format/internal/answer"

// recordUsage reads usage from the first member of an answer or chunk that has it.
func (a *reader) recordUsage(p *chunkParts, data []byte) answer.Found {
	found := a.Report(p.usage)
	if found == answer.Nothing {
		found = a.ReportElsewhere(data)
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
