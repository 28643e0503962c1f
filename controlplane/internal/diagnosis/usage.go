package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"modelgateway/controlplane/internal/traffic"
)

// Doubts about the usage that a provider reports are a finding if more than one answer in doubtShare is in doubt, and more
// than doubtAnswers are: the same bounds as those of the alert.
const (
	doubtShare   = 100
	doubtAnswers = 5
)

// checkUsage reports the providers whose answers are charged by an estimate because of what they report. Answers that broke
// off are estimated by nature, and ambiguous reports are charged as reported.
func checkUsage(doubts []traffic.UsageDoubt) []Finding {
	type sum struct {
		answers, of int64
		reasons     []string
	}

	by := map[string]*sum{}
	for _, d := range doubts {
		if d.Reason == "interrupted" || d.Reason == "ambiguous" {
			continue
		}
		if by[d.Provider] == nil {
			by[d.Provider] = &sum{of: d.Of}
		}
		s := by[d.Provider]
		s.answers += d.Answers
		s.reasons = append(s.reasons, fmt.Sprintf("%s %d", d.Reason, d.Answers))
	}

	add := collect("catalog")
	for _, provider := range slices.Sorted(maps.Keys(by)) {
		s := by[provider]
		if s.answers <= doubtAnswers || s.answers*doubtShare <= s.of {
			continue
		}
		add.check(true, Warning, "usage", provider,
			fmt.Sprintf("%d answers of the last hour had no usage that can be true (%s)", s.answers, strings.Join(s.reasons, ", ")),
			"These answers are charged by an estimate, which may differ from what the provider charges.",
			"Compare an answer of the provider with what it should report; the runbook MgwUsageEstimated explains the reasons.")
	}

	if len(add.findings) == 0 {
		add.check(false, OK, "usage", "", "providers report usage that can be true", "", "")
	}

	return add.findings
}
