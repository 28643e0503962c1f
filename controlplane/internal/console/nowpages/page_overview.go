package nowpages

import (
	"sync"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// overviewView is the data of the overview. A member that could not be read is nil, and its problem says why.
type overviewView struct {
	Diagnosis *adminclient.Diagnosis
	Fleet     *adminclient.Fleet
	Today     *adminclient.UsageTotalList
	// Needs are the findings that somebody has to act on.
	Needs    []adminclient.Finding
	Problems []string
}

// overview shows what needs attention now. Each part is read by itself, so that one that fails hides no other.
func overview(r *kit.Request) (*kit.Page, error) {
	var view overviewView
	var mu sync.Mutex
	var parts sync.WaitGroup
	failed := func(part string, err error) {
		mu.Lock()
		defer mu.Unlock()
		view.Problems = append(view.Problems, part+": "+err.Error())
	}
	if r.May(kit.Observe) {
		parts.Go(func() {
			answer, err := r.API.GetDiagnosis(r.Context())
			if err != nil {
				failed("The diagnosis cannot be read", err)
				return
			}
			view.Diagnosis = answer.Value
			for _, f := range answer.Value.Findings {
				if f.Status != adminclient.FindingStatusOK {
					view.Needs = append(view.Needs, f)
				}
			}
		})
		parts.Go(func() {
			answer, err := r.API.ListProxies(r.Context())
			if err != nil {
				failed("The proxies cannot be read", err)
				return
			}
			view.Fleet = answer.Value
		})
	}
	parts.Go(func() {
		answer, err := r.API.GetUsageTotals(r.Context(), &adminclient.GetUsageTotalsParams{GroupBy: []adminclient.UsageGroup{"day"}, Limit: new(7)})
		if err != nil {
			failed("The usage cannot be read", err)
			return
		}
		view.Today = answer.Value
	})
	parts.Wait()
	return &kit.Page{Template: "overview", Title: "Overview", Command: "gwctl doctor\ngwctl proxies list", Data: &view}, nil
}
