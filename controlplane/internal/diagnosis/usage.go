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

// checkLeftOut reports the routes whose providers refuse members that the gateway adds to requests.
func checkLeftOut(leftOut []traffic.LeftOut) []Finding {
	add := collect("catalog")
	for _, m := range leftOut {
		meaning := "Every proxy finds that out by a refused call, once a day."
		switch m.Member {
		case "stream_options":
			meaning = "The provider may report no usage for streams, which are then charged by an estimate."
		case "store":
			meaning = "The provider does not know the request to store nothing: what it keeps depends on its terms."
		case "service_tier":
			meaning = "The provider chooses the service tier, and its price."
		case "include":
			meaning = "Reasoning that clients send back may have no content for this provider."
		}
		add.check(true, Warning, "added_members", m.Route,
			fmt.Sprintf("provider %s refuses %s, which %d calls of the last hour left out", m.Provider, m.Member, m.Calls), meaning,
			fmt.Sprintf("If that is acceptable, say so in the params of the route: %s: {policy: drop}.", m.Member))
	}

	if len(add.findings) == 0 {
		add.check(false, OK, "added_members", "", "providers take what the gateway adds to requests", "", "")
	}

	return add.findings
}
