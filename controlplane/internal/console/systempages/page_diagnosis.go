package systempages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// areaView has the findings of one area that are ok.
type areaView struct {
	Name     adminclient.FindingArea
	Findings []adminclient.Finding
}

// problem is a finding that is not ok, with the page that shows more about it; nil if there is none.
type problem struct {
	adminclient.Finding
	Place *kit.Link
}

// places are the pages about what checks look at: by area, or by area and check.
var places = map[string]kit.Link{
	"catalog": {Text: "Providers", URL: "/console/providers"}, "catalog usable_route": {Text: "Models", URL: "/console/models"},
	"catalog tool_price": {Text: "Models", URL: "/console/models"}, "catalog calls": {Text: "Routes", URL: "/console/routes"},
	"catalog served": {Text: "Routes", URL: "/console/routes"}, "ledger": {Text: "Money check", URL: "/console/money"},
	"postgres quarantine": {Text: "Quarantine", URL: "/console/quarantine"}, "proxies": {Text: "Fleet", URL: "/console/proxies"},
	"proxies catalog": {Text: "Models", URL: "/console/models"}, "proxies credentials": {Text: "Providers", URL: "/console/providers"},
	"secrets": {Text: "Secrets", URL: "/console/secrets"},
}

func newProblem(f adminclient.Finding) problem {
	for _, name := range []string{string(f.Area) + " " + f.Check, string(f.Area)} {
		if place, ok := places[name]; ok {
			return problem{f, &place}
		}
	}
	return problem{Finding: f}
}

type diagnosisView struct {
	*adminclient.Diagnosis
	Areas []areaView
	// Problems are the findings that are not ok, failures first; Areas has the others.
	Problems []problem
	// Text is the diagnosis for a ticket.
	Text string
}

var severity = map[adminclient.FindingStatus]int{adminclient.FindingStatusFailure: 0, adminclient.FindingStatusWarning: 1}

// showDiagnosis runs all checks and shows what they found.
func showDiagnosis(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetDiagnosis(r.Context(), nil)
	if err != nil {
		return nil, err
	}

	data := &diagnosisView{Diagnosis: answer.Value, Text: diagnosisText(answer.Value)}
	for _, f := range answer.Value.Findings {
		if f.Status != adminclient.FindingStatusOK {
			data.Problems = append(data.Problems, newProblem(f))
			continue
		}
		at := slices.IndexFunc(data.Areas, func(a areaView) bool { return a.Name == f.Area })
		if at < 0 {
			at = len(data.Areas)
			data.Areas = append(data.Areas, areaView{Name: f.Area})
		}
		data.Areas[at].Findings = append(data.Areas[at].Findings, f)
	}

	slices.SortStableFunc(data.Problems, func(x, y problem) int { return cmp.Compare(severity[x.Status], severity[y.Status]) })
	return &kit.Page{
		Template: "diagnosis",
		Title:    "Diagnosis",
		Command:  "gwctl doctor",
		Data:     data,
	}, nil
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
