package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

// sources are what the list of what needs somebody is made from. Nothing else decides what a page shows of it: the dot in the
// header, its number, the banners and the list on the overview are all made from this one list.
var sources = [...]struct {
	name string
	read func(context.Context, *adminclient.Client) ([]kit.Need, int, error)
}{
	{"checks of the ledger", failedChecks},
	{"diagnosis", findings},
	{"quarantine", quarantined},
	{"proxies", refusalsAndLosses},
	{"routes", openBreakers},
	{"maintenance", openMaintenance},
	{"video jobs", stuckVideos},
	{"webhooks", failingWebhooks},
	{"accounts", overdrawnAccounts},
}

// readNeeds asks all sources at once. Each is read by itself, so that one that fails hides no other. What cannot be read is on
// the list itself: silence would look like health. away is set if the database did not answer a source.
func readNeeds(ctx context.Context, api *adminclient.Client) (list []kit.Need, checks int, away bool) {
	found, counts, errs := [len(sources)][]kit.Need{}, [len(sources)]int{}, [len(sources)]error{}
	var reading sync.WaitGroup
	for i, s := range sources {
		reading.Go(func() { found[i], counts[i], errs[i] = s.read(ctx, api) })
	}

	reading.Wait()
	for i, s := range sources {
		switch {
		case kit.Away(errs[i]):
			away = true
		case errs[i] != nil:
			list = append(list, kit.Need{
				Kind:   "warn",
				Text:   "The " + s.name + " cannot be read at the moment.",
				Detail: errs[i].Error(),
				Link:   kit.Link{Text: "Diagnosis", URL: "/console/diagnosis"},
			})
		}
		list = append(list, found[i]...)
		checks += counts[i]
	}

	list = withoutRefusalsOfUnusable(list)
	slices.SortStableFunc(list, func(a, b kit.Need) int { return strings.Compare(a.Kind, b.Kind) }) // "bad" before "warn"
	return list, checks, away
}

// withoutRefusalsOfUnusable removes the needs about single credentials of a provider that refuses all: one need says so.
func withoutRefusalsOfUnusable(list []kit.Need) []kit.Need {
	unusable := map[string]bool{}
	for _, n := range list {
		unusable[n.Provider] = unusable[n.Provider] || (n.Provider != "" && n.Kind == "bad")
	}
	return slices.DeleteFunc(list, func(n kit.Need) bool { return n.Kind != "bad" && unusable[n.Provider] })
}

// failedChecks returns the kinds of checks of the ledger whose last run found a difference.
func failedChecks(ctx context.Context, api *adminclient.Client) ([]kit.Need, int, error) {
	var found []kit.Need
	for _, kind := range []adminclient.LedgerCheckKind{
		adminclient.LedgerCheckKindChanged, adminclient.LedgerCheckKindRecent,
		adminclient.LedgerCheckKindAll, adminclient.LedgerCheckKindReceipts,
	} {
		runs, err := api.ListLedgerChecks(ctx, &adminclient.ListLedgerChecksParams{Kind: &kind, Limit: new(1)})
		if err != nil {
			return found, 0, err
		}
		for _, run := range runs.Value.Data {
			if run.OK != nil && !*run.OK {
				found = append(found, kit.Need{
					Kind:  "bad",
					Text:  fmt.Sprintf("The ledger check %q found a difference.", kind),
					Since: run.EndedAt,
					Link:  kit.Link{Text: "Show the first row", URL: kit.Path("money", "checks", run.ID)},
				})
			}
		}
	}

	return found, 0, nil
}

// pagesOfAreas has the page on which findings of an area are settled. Other areas have the page of the diagnosis.
var pagesOfAreas = map[adminclient.FindingArea]kit.Link{
	"catalog": {
		Text: "Models",
		URL:  "/console/models",
	},
	"proxies": {Text: "Fleet", URL: "/console/proxies"},
	"ledger":  {Text: "Money check", URL: "/console/money"},
	"secrets": {Text: "Secrets", URL: "/console/secrets"},
}

// shownElsewhere reports whether a finding is on the list from a source that says more.
func shownElsewhere(f *adminclient.Finding) bool {
	return f.Check == "quarantine" || f.Check == "credentials"
}

// findings returns what the diagnosis found, and the number of its checks.
func findings(ctx context.Context, api *adminclient.Client) ([]kit.Need, int, error) {
	// The ledger is on the list by its own checks. Checking it here would read much of it every few seconds.
	answer, err := api.GetDiagnosis(ctx, &adminclient.GetDiagnosisParams{Ledger: new(false)})
	if err != nil {
		return nil, 0, err
	}

	var found []kit.Need
	for i := range answer.Value.Findings {
		f := &answer.Value.Findings[i]
		if f.Status == adminclient.FindingStatusOK || shownElsewhere(f) {
			continue
		}

		n := kit.Need{Kind: view.State(string(f.Status)).Kind, Text: f.Detail, Link: kit.Link{Text: "Diagnosis", URL: "/console/diagnosis"}}
		if link, known := pagesOfAreas[f.Area]; known {
			n.Link = link
		}

		if f.Check == "provider_bills" {
			n.Link = kit.Link{Text: "Provider bills", URL: "/console/bills"}
		}

		if f.Subject != nil && *f.Subject != "" {
			n.Text = *f.Subject + ": " + n.Text
			switch f.Check {
			case "usable_credential":
				n.Text, n.Provider = "Provider "+n.Text, *f.Subject
				n.Link = kit.Link{Text: "Provider", URL: kit.Path("providers", *f.Subject)}
			case "certificate":
				provider, _, _ := strings.Cut(*f.Subject, "/")
				n.Link = kit.Link{Text: "Provider", URL: kit.Path("providers", provider)}
			case "usable_route", "tool_price":
				n.Link = kit.Link{Text: "Model", URL: kit.Path("models", *f.Subject)}
			}
		}

		var detail []string
		for _, more := range []*string{f.Meaning, f.Advice} {
			if more != nil {
				detail = append(detail, *more)
			}
		}

		n.Detail = strings.Join(detail, " ")
		found = append(found, n)
	}

	return found, len(answer.Value.Findings), nil
}

// plural returns a text that begins with a number: one for 1, with %d in more for others. further is set if there are
// more than n.
func plural(n int, further bool, one, more string) string {
	if n == 1 && !further {
		return one
	}
	text := fmt.Sprintf(more, n)
	if further {
		text = "More than " + text
	}
	return text
}

// listed is how many entries of a list are counted.
const listed = 100

func quarantined(ctx context.Context, api *adminclient.Client) ([]kit.Need, int, error) {
	answer, err := api.ListQuarantine(
		ctx,
		&adminclient.ListQuarantineParams{State: new(adminclient.QuarantineStateOpen), Limit: new(listed)},
	)
	if err != nil || len(answer.Value.Data) == 0 {
		return nil, 0, err
	}
	n := kit.Need{
		Kind:   "warn",
		Detail: "Each is charged only if somebody settles it.",
		Link:   kit.Link{Text: "Quarantine", URL: "/console/quarantine"},
		Text: plural(
			len(answer.Value.Data),
			answer.Value.NextCursor != nil,
			"A usage event is in quarantine.",
			"%d usage events are in quarantine.",
		),
	}
	return []kit.Need{n}, 0, nil
}

// refusalsAndLosses returns the credentials that providers refuse, and a recent loss of commits.
func refusalsAndLosses(ctx context.Context, api *adminclient.Client) ([]kit.Need, int, error) {
	answer, err := api.ListProxies(ctx)
	if err != nil {
		return nil, 0, err
	}

	found := lostCommits(answer.Value, time.Now())
	for _, c := range answer.Value.RefusedCredentials {
		found = append(found, kit.Need{
			Kind:     "warn",
			Since:    &c.Since,
			Link:     kit.Link{Text: "Provider", URL: kit.Path("providers", c.ProviderID)},
			Provider: c.ProviderID,
			Text: fmt.Sprintf(
				"Provider %s refuses the credential %q at %d of %d proxies: %s.",
				c.ProviderID,
				c.Credential,
				len(c.Proxies),
				len(answer.Value.Data),
				strings.ReplaceAll(string(c.Reason), "_", " "),
			),
		})
	}

	return found, 0, nil
}

// lossShownFor is how long a loss of commits is shown: as long as usage from before it may be settled again.
const lossShownFor = 24 * time.Hour

// lostCommits returns a loss of commits that the fleet has recovered from. While it recovers, the diagnosis reports it.
func lostCommits(f *adminclient.Fleet, now time.Time) []kit.Need {
	if f.Recovering || f.CommitsLostAt == nil || now.Sub(*f.CommitsLostAt) >= lossShownFor {
		return nil
	}

	return []kit.Need{{
		Kind:   "warn",
		Since:  f.CommitsLostAt,
		Text:   "Postgres was found to have lost commits.",
		Detail: "Changes from shortly before are gone: the newest entry before that time tells which remain.",
		Link:   kit.Link{Text: "Audit", URL: "/console/audit?" + kit.Query("to", f.CommitsLostAt.UTC().Format(time.RFC3339))},
	}}
}

// openMaintenance returns what is closed without an end. What has an end opens by itself.
func openMaintenance(ctx context.Context, api *adminclient.Client) ([]kit.Need, int, error) {
	answer, err := api.ListMaintenance(ctx)
	if err != nil {
		return nil, 0, err
	}

	var closed []string
	for _, m := range answer.Value.Data {
		if !m.Active || m.Until != nil {
			continue
		}

		name := "the whole " + string(m.Scope)
		if m.ID != nil {
			name = string(m.Scope) + " " + *m.ID
		}
		closed = append(closed, name)
	}

	if len(closed) == 0 {
		return nil, 0, nil
	}

	return []kit.Need{{
		Kind:   "warn",
		Text:   "Closed for maintenance without an end: " + strings.Join(closed, ", ") + ".",
		Detail: "Requests for it get 503 until somebody opens it.",
		Link:   kit.Link{Text: "Maintenance", URL: "/console/maintenance"},
	}}, 0, nil
}

func openBreakers(ctx context.Context, api *adminclient.Client) ([]kit.Need, int, error) {
	answer, err := api.GetRoutesHealth(ctx)
	if err != nil {
		return nil, 0, err
	}

	var found []kit.Need
	for _, route := range answer.Value.Data {
		n := kit.Need{Kind: "warn", Link: kit.Link{Text: "Routes", URL: "/console/routes"}}
		open := 0
		for _, b := range route.Breakers {
			if b.State != adminclient.BreakerStateOpen || b.Silent {
				continue
			}
			open++
			if b.Since != nil && (n.Since == nil || b.Since.Before(*n.Since)) {
				n.Since = b.Since
			}
			if b.ErrorClass != nil {
				n.Detail = "The last failure: " + strings.ReplaceAll(*b.ErrorClass, "_", " ") + "."
			}
		}

		if open > 0 {
			n.Text = fmt.Sprintf(
				"%d of %d proxies do not call the route of %s to %s.",
				open,
				answer.Value.Heard,
				route.Model,
				route.ProviderID,
			)
			found = append(found, n)
		}
	}

	return found, 0, nil
}

func stuckVideos(ctx context.Context, api *adminclient.Client) ([]kit.Need, int, error) {
	var found []kit.Need
	for _, state := range []struct {
		state     adminclient.VideoState
		one, more string
	}{
		{adminclient.VideoStateStuck, "A video job is stuck.", "%d video jobs are stuck."},
		{adminclient.VideoStateUnknown, "The result of the creation of a video job is " +
			"unknown.", "The results of the creation of %d video jobs are unknown."},
	} {
		answer, err := api.ListVideoJobs(ctx, &adminclient.ListVideoJobsParams{State: &state.state, Limit: new(listed)})
		if err != nil {
			return found, 0, err
		}
		if jobs := answer.Value.Data; len(jobs) > 0 {
			found = append(found, kit.Need{
				Kind: "warn", Text: plural(len(jobs), answer.Value.NextCursor != nil, state.one, state.more),
				Link: kit.Link{Text: "Video jobs", URL: "/console/video-jobs?" + kit.Query("state", string(state.state))},
			})
		}
	}

	return found, 0, nil
}

func failingWebhooks(ctx context.Context, api *adminclient.Client) ([]kit.Need, int, error) {
	answer, err := api.ListWebhooks(ctx, &adminclient.ListWebhooksParams{Limit: new(listed)})
	if err != nil {
		return nil, 0, err
	}

	var found []kit.Need
	for _, w := range answer.Value.Data {
		n := kit.Need{Kind: "warn", Since: w.FailingSince, Link: kit.Link{Text: "Webhook", URL: kit.Path("webhooks", w.ID)}}
		switch {
		case w.DisabledReason != nil:
			n.Text, n.Detail = "The webhook "+w.URL+" was disabled.", *w.DisabledReason
		case w.FailingSince != nil && w.Enabled:
			n.Text = "The webhook " + w.URL + " fails."
		default:
			continue
		}
		found = append(found, n)
	}

	return found, 0, nil
}

// overdrawnAccounts looks at the accounts with the least balances.
func overdrawnAccounts(ctx context.Context, api *adminclient.Client) ([]kit.Need, int, error) {
	answer, err := api.ListAccounts(ctx, &adminclient.ListAccountsParams{Sort: new(adminclient.AccountSortBalance), Limit: new(listed)})
	if err != nil {
		return nil, 0, err
	}

	count, sum := 0, "0.00"
	for _, a := range answer.Value.Data {
		if view.Negative(a.Balance.Balance) {
			count++
			sum = view.Add(sum, a.Balance.Balance)
		}
	}

	if count == 0 {
		return nil, 0, nil
	}

	return []kit.Need{
		{
			Kind: "warn",
			Text: plural(
				count,
				count == listed,
				"The balance of an account is negative: ",
				"The balances of %d accounts are negative: ",
			) + sum + " in all.",
			Link: kit.Link{Text: "Accounts", URL: "/console/accounts?sort=balance"},
		},
	}, 0, nil
}
