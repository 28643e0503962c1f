package console

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/view"
)

const (
	// bannersFor is how long banners are shown before they are read again.
	bannersFor = 15 * time.Second
	// bannersWait bounds how long a page waits for them.
	bannersWait = time.Second
)

// watch holds what every page shows about the state of the system. The first page after bannersFor reads it again; it costs
// some short queries, and not the whole diagnosis.
type watch struct {
	api *adminclient.Client
	now func() time.Time
	// outage is that of the console.
	outage *outage

	mu    sync.Mutex
	state *kit.Health
	// reading is set while a page reads the state; others show the last one.
	reading bool
}

// health returns the state of the system as the person may see it: of the database alone while it does not answer.
func (c *Console) health(r *kit.Request) *kit.Health {
	if r.Session.Remembered {
		now := time.Now()
		return &kit.Health{At: now, Banners: []kit.Banner{c.outage.banner(now)}}
	}
	return c.watch.health(r)
}

// health returns the state of the system for a person who may observe it, otherwise nil.
func (w *watch) health(r *kit.Request) *kit.Health {
	if !r.May(kit.Observe) {
		return nil
	}

	w.mu.Lock()
	last := w.state
	if w.reading || last != nil && w.now().Sub(last.At) < bannersFor {
		w.mu.Unlock()
		return last
	}

	w.reading = true
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), bannersWait) // others see the result, too
	defer cancel()
	next := w.read(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.reading = next, false

	return next
}

// read asks for what needs a banner. What cannot be read is a banner itself: silence would look like health.
func (w *watch) read(ctx context.Context) *kit.Health {
	h := &kit.Health{At: w.now()}
	var mu sync.Mutex
	away := false
	var parts sync.WaitGroup
	for name, part := range map[string]func(context.Context) ([]kit.Banner, error){
		"The checks of the money": w.money, "The maintenance": w.maintenance, "The proxies": w.proxies, "The quarantine": w.quarantine,
	} {
		parts.Go(func() {
			found, err := part(ctx)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case kit.Away(err):
				away = true
			case err != nil:
				found = []kit.Banner{{Kind: "warn", Text: name + " cannot be read at the moment."}}
			}
			h.Banners = append(h.Banners, found...)
		})
	}

	parts.Wait()
	if away {
		h.Banners = append(h.Banners, kit.Banner{Kind: "bad", Text: "Not everything can be read.", Since: w.outage.began(h.At)})
	}

	h.Sort()
	return h
}

// money tells of the last run of each kind of check that found a difference.
func (w *watch) money(ctx context.Context) ([]kit.Banner, error) {
	var found []kit.Banner
	for _, kind := range []adminclient.LedgerCheckKind{
		adminclient.LedgerCheckKindChanged, adminclient.LedgerCheckKindRecent,
		adminclient.LedgerCheckKindAll, adminclient.LedgerCheckKindReceipts,
	} {
		runs, err := w.api.ListLedgerChecks(ctx, &adminclient.ListLedgerChecksParams{Kind: &kind, Limit: new(1)})
		if err != nil {
			return nil, err
		}
		for _, run := range runs.Value.Data {
			if run.OK != nil && !*run.OK {
				found = append(found, kit.Banner{
					Kind: "bad", Text: "The check of the money found a difference (" + string(kind) + ").",
					Link: kit.Link{Text: "Show the first row", URL: kit.Path("money", "checks", run.ID)},
				})
			}
		}
	}

	return found, nil
}

// maintenance tells what is closed now.
func (w *watch) maintenance(ctx context.Context) ([]kit.Banner, error) {
	answer, err := w.api.ListMaintenance(ctx)
	if err != nil {
		return nil, err
	}

	var closed []string
	for _, m := range answer.Value.Data {
		if m.Active {
			name := string(m.Scope)
			if m.ID != nil {
				name += " " + *m.ID
			}
			closed = append(closed, name)
		}
	}

	if len(closed) == 0 {
		return nil, nil
	}

	return []kit.Banner{
		{
			Kind: "warn",
			Text: "Closed for maintenance: " + strings.Join(closed, ", ") + ".",
			Link: kit.Link{Text: "Maintenance", URL: "/console/maintenance"},
		},
	}, nil
}

// lossShownFor is how long a loss of commits is told of: as long as usage from before it may be settled again.
const lossShownFor = 24 * time.Hour

// proxies tells of proxies that are behind, of none, and of lost commits.
func (w *watch) proxies(ctx context.Context) ([]kit.Banner, error) {
	answer, err := w.api.ListProxies(ctx)
	if err != nil {
		return nil, err
	}

	to := kit.Link{Text: "Fleet", URL: "/console/proxies"}
	fleet, behind, found := answer.Value, 0, w.lostCommits(answer.Value)
	if len(fleet.Data) == 0 {
		return append(found, kit.Banner{Kind: "bad", Text: "No proxy is registered: no request can be served.", Link: to}), nil
	}

	for _, p := range fleet.Data {
		if p.AppliedRevision < fleet.Revision || p.CatalogRevision < fleet.CatalogRevision {
			behind++
		}
	}

	if behind > 0 {
		found = append(
			found,
			kit.Banner{
				Kind: "warn",
				Text: fmt.Sprintf("%d of %d proxies have not applied all changes yet.", behind, len(fleet.Data)),
				Link: to,
			},
		)
	}

	return found, nil
}

// lostCommits tells that Postgres has lost commits.
func (w *watch) lostCommits(f *adminclient.Fleet) []kit.Banner {
	at := "At an unknown time"
	if f.CommitsLostAt != nil {
		at = "At " + view.UTC(*f.CommitsLostAt)
	}

	switch {
	case f.Recovering:
		return []kit.Banner{
			{
				Kind: "bad",
				Text: at + " Postgres was found to have lost commits. New requests get 503 until every session from before has ended.",
				Link: kit.Link{Text: "Diagnosis", URL: "/console/diagnosis"},
			},
		}
	case f.CommitsLostAt != nil && w.now().Sub(*f.CommitsLostAt) < lossShownFor:
		return []kit.Banner{
			{
				Kind: "warn",
				Text: at + " Postgres was found to have lost commits. Changes from shortly before are gone: the newest entry before " +
					"that time tells which remain.",
				Link: kit.Link{Text: "Audit", URL: "/console/audit?" + kit.Query("to", f.CommitsLostAt.UTC().Format(time.RFC3339))},
			},
		}
	}

	return nil
}

// quarantine tells of usage events that wait for a person.
func (w *watch) quarantine(ctx context.Context) ([]kit.Banner, error) {
	answer, err := w.api.ListQuarantine(
		ctx,
		&adminclient.ListQuarantineParams{State: new(adminclient.QuarantineStateOpen), Limit: new(100)},
	)
	if err != nil || len(answer.Value.Data) == 0 {
		return nil, err
	}
	text := fmt.Sprintf("%d usage events wait in quarantine, not charged.", len(answer.Value.Data))
	switch {
	case answer.Value.NextCursor != nil:
		text = "More than " + text
	case len(answer.Value.Data) == 1:
		text = "A usage event waits in quarantine, not charged."
	}
	return []kit.Banner{{Kind: "warn", Text: text, Link: kit.Link{Text: "Quarantine", URL: "/console/quarantine"}}}, nil
}
