package usagestore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/margin"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
)

// call is a call of a request that the test has stored.
type call struct {
	at                                 time.Time
	account, project, key              ident.UUID
	model, provider, route, credential string
	requests                           int64
	charged                            money.Nano
	cost                               *money.Nano
}

// storeCalls stores random requests of two days, and returns their calls.
func storeCalls(t *testing.T, db *postgres.DB, random *rand.Rand, start time.Time, n int) []call {
	t.Helper()
	var calls []call
	cost := func() *money.Nano {
		if random.IntN(5) == 0 {
			return nil
		}
		return new(money.Nano(random.Int64N(20)))
	}
	for i := range n {
		at := start.Add(time.Duration(random.Int64N(int64(48 * time.Hour)))).Truncate(time.Millisecond)
		own := call{
			at: at, account: ident.UUID{6: 0x70, 15: byte(random.IntN(3))}, key: ident.UUID{6: 0x71, 15: byte(random.IntN(5))},
			model: fmt.Sprint("model-", random.IntN(3)), requests: 1, charged: money.Nano(random.Int64N(4) * random.Int64N(15)), cost: cost(),
		}
		if random.IntN(2) == 0 {
			own.project = ident.UUID{6: 0x72, 15: byte(random.IntN(2))}
		}
		of := func(c *call) {
			c.provider, c.route, c.credential = fmt.Sprint("p", random.IntN(2)), fmt.Sprint("r", random.IntN(4)), fmt.Sprint("c", random.IntN(2))
		}
		of(&own)
		calls = append(calls, own)

		attempts := []map[string]any{}
		for range random.IntN(3) * random.IntN(2) {
			lost := own
			lost.requests, lost.charged, lost.cost = 0, 0, cost()
			of(&lost)
			a := map[string]any{"route": lost.route, "provider": lost.provider, "credential": "crd_1", "credential_name": lost.credential, "class": "timeout"}
			if random.IntN(3) > 0 {
				a["usage"] = price.Usage{Input: 1}
				if lost.cost != nil {
					a["provider_cost"] = *lost.cost
				}
				calls = append(calls, lost)
			}
			attempts = append(attempts, a)
		}
		var stored any
		if len(attempts) > 0 {
			text, _ := json.Marshal(attempts)
			stored = string(text)
		}
		var of0 any
		if !own.project.IsZero() {
			of0 = own.project
		}
		_, err := db.Pool().Exec(t.Context(), `insert into usage_records (request_id, session_id, seq, account_id, key_id, project_id, model, format,
				provider, route, credential, status, started_at, finished_at, usage, rule, price_version, cost, reservation, attempts, provider_cost)
			values ($1, 1, $2, $3, $4, $5, $6, 'chat', $7, $8, $9, $10, $11, $11, '{}', 'reported', 1, $12, 0, $13, $14)`,
			ident.NewAt(at), i+1, own.account, own.key, of0, own.model, own.provider, own.route, own.credential, string(event.Completed), at,
			int64(own.charged), stored, (*int64)(own.cost))
		if err != nil {
			t.Fatal(err)
		}
	}
	return calls
}

// nameOf returns the line of a call.
func nameOf(c *call, q *margin.Query) (provider, name string) {
	switch q.By {
	case margin.ByAccount:
		return "", account.ID(c.account).String()
	case margin.ByProject:
		if c.project.IsZero() {
			return "", ""
		}
		return "", project.ID(c.project).String()
	case margin.ByKey:
		return "", key.ID(c.key).String()
	case margin.ByModel:
		return "", c.model
	case margin.ByProvider:
		return "", c.provider
	case margin.ByRoute:
		return "", c.route
	case margin.ByCredential:
		return c.provider, c.credential
	case margin.ByDay:
	}
	zone := q.Zone
	if zone == nil {
		zone = time.UTC
	}
	return "", c.at.In(zone).Format(time.DateOnly)
}

func addCall(s *margin.Sums, c *call) {
	s.Requests += c.requests
	s.Charged += c.charged
	if c.cost == nil {
		s.Unknown++
		s.UnknownCharged += c.charged
		return
	}
	s.ProviderCost += *c.cost
	if c.charged == 0 {
		s.Loss += *c.cost
	}
}

// filterOf returns the filter that finds the calls of a project, or of none.
func filterOf(of ident.UUID) project.ID {
	if of.IsZero() {
		return project.None
	}
	return project.ID(of)
}

func expectedReport(calls []call, q *margin.Query) margin.Report {
	var report margin.Report
	lines := map[[2]string]*margin.Line{}
	starts := q.StartsOfDays()
	for i := range calls {
		c := &calls[i]
		if c.at.Before(starts[0]) || !c.at.Before(starts[len(starts)-1]) || q.AccountID != (account.ID{}) && q.AccountID != account.ID(c.account) ||
			q.KeyID != (key.ID{}) && q.KeyID != key.ID(c.key) || q.ProjectID != (project.ID{}) && q.ProjectID != filterOf(c.project) ||
			q.Model != "" && q.Model != c.model || q.Provider != "" && q.Provider != c.provider || q.Route != "" && q.Route != c.route ||
			q.Credential != "" && q.Credential != c.credential {
			continue
		}
		provider, name := nameOf(c, q)
		l := lines[[2]string{provider, name}]
		if l == nil {
			l = &margin.Line{Name: name, Provider: provider}
			lines[[2]string{provider, name}] = l
		}
		addCall(&l.Sums, c)
		addCall(&report.Total, c)
	}
	for _, l := range lines {
		report.Lines = append(report.Lines, *l)
	}
	slices.SortFunc(report.Lines, func(a, b margin.Line) int {
		return cmp.Or(cmp.Compare(a.Margin(), b.Margin()), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Name, b.Name))
	})
	return report
}

// A report has what the calls of its filters sum up to, worst first, on pages that have each line once. The sums over the lines of any
// kind are those of all calls.
func TestMarginIsTheSumOverTheCalls(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	random := rand.New(rand.NewPCG(5, 6))
	first := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	calls := storeCalls(t, db, random, first, 400)
	store := NewUsage(db)
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	for range 120 {
		q := margin.Query{By: margin.All[random.IntN(len(margin.All))], From: first.AddDate(0, 0, random.IntN(2)-1), To: first.AddDate(0, 0, 1+random.IntN(2)), Limit: 1 + random.IntN(5)}
		of := calls[random.IntN(len(calls))]
		for _, filter := range []func(){
			func() { q.AccountID = account.ID(of.account) }, func() { q.KeyID = key.ID(of.key) }, func() { q.ProjectID = filterOf(of.project) },
			func() { q.Model = of.model }, func() { q.Provider = of.provider }, func() { q.Route = of.route }, func() { q.Credential = of.credential },
			func() { q.Zone = tokyo },
		} {
			if random.IntN(6) == 0 {
				filter()
			}
		}

		want, got := expectedReport(calls, &q), margin.Report{}
		for {
			page, err := store.Margin(t.Context(), &q)
			if err != nil {
				t.Fatal(err)
			}
			got.Total, got.Lines = page.Total, append(got.Lines, page.Lines...)
			if len(page.Lines) < q.Limit {
				break
			}
			q.After = new(page.Lines[len(page.Lines)-1].Position())
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("%+v (-want +got):\n%s", q, diff)
		}
	}

	if _, err := db.Pool().Exec(t.Context(), "insert into usage_months (month, records, cost, exported_at, dropped_at) values (date_trunc('month', now() - interval '5 months')::date, 1, 1, now(), now())"); err != nil {
		t.Fatal(err)
	}
	old := first.AddDate(0, -5, 0)
	if _, err := store.Margin(t.Context(), &margin.Query{By: margin.ByDay, From: old.AddDate(0, 0, -1), To: old, Limit: 1}); err != usage.ErrRecordsDropped { //nolint:errorlint // as it is
		t.Errorf("a period whose records were dropped: %v", err)
	}
}
