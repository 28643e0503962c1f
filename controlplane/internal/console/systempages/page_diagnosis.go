package systempages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// areaView has the findings of one area, problems first.
type areaView struct {
	Name     adminclient.FindingArea
	Findings []adminclient.Finding
}

type diagnosisView struct {
	*adminclient.Diagnosis
	Areas []areaView
	// Problems counts the findings that are not ok.
	Problems int
	// Text is the diagnosis for a ticket.
	Text string
}

var severity = map[adminclient.FindingStatus]int{adminclient.FindingStatusFailure: 0, adminclient.FindingStatusWarning: 1, adminclient.FindingStatusOK: 2}

// showDiagnosis runs all checks and shows what they found.
func showDiagnosis(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetDiagnosis(r.Context())
	if err != nil {
		return nil, err
	}
	data := &diagnosisView{Diagnosis: answer.Value, Text: diagnosisText(answer.Value)}
	for _, f := range answer.Value.Findings {
		at := slices.IndexFunc(data.Areas, func(a areaView) bool { return a.Name == f.Area })
		if at < 0 {
			at = len(data.Areas)
			data.Areas = append(data.Areas, areaView{Name: f.Area})
		}
		data.Areas[at].Findings = append(data.Areas[at].Findings, f)
		if f.Status != adminclient.FindingStatusOK {
			data.Problems++
		}
	}
	worst := func(a areaView) int {
		least := severity[adminclient.FindingStatusOK]
		for _, f := range a.Findings {
			least = min(least, severity[f.Status])
		}
		return least
	}
	for _, a := range data.Areas {
		slices.SortStableFunc(a.Findings, func(x, y adminclient.Finding) int { return cmp.Compare(severity[x.Status], severity[y.Status]) })
	}
	slices.SortStableFunc(data.Areas, func(x, y areaView) int { return cmp.Compare(worst(x), worst(y)) })
	return &kit.Page{Template: "diagnosis", Title: "Diagnosis", Command: "gwctl doctor", Data: data}, nil
}

// diagnosisText returns the findings as text, problems in full.
func diagnosisText(d *adminclient.Diagnosis) string {
	var b strings.Builder
	fmt.Fprintf(&b, "diagnosis %s at %s by %s\n", d.Status, d.At.UTC().Format("2006-01-02 15:04:05 UTC"), d.Build)
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%s %s %s", f.Status, f.Area, f.Check)
		if f.Subject != nil {
			fmt.Fprintf(&b, " (%s)", *f.Subject)
		}
		fmt.Fprintf(&b, ": %s\n", f.Detail)
		for _, more := range []*string{f.Meaning, f.Advice} {
			if more != nil {
				fmt.Fprintf(&b, "    %s\n", *more)
			}
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
