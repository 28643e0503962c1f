package usagestore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// used contains the properties of a record that totals depend on.
type used struct {
	at time.Time
	event.Usage
}

// For every query, totals are the sums over the records.
func TestTotalsEqualSumsOfRecords(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	w := newLeaseWorld(t)
	db := w.Replica()
	customers := []*storetest.Customer{w.Customer(1000, storetest.Unlimited, 5), w.Customer(1000, 500, 5), w.Customer(1000, storetest.Unlimited, 5)}
	records := w.settleRandomUsage(r, db, customers)
	service := usage.NewService(usagestore.NewUsage(db))
	for range 150 {
		q := randomQuery(r, customers)
		want := map[usage.Total]usage.Sums{}
		for i := range records {
			records[i].addTo(want, &q)
		}
		got := map[usage.Total]usage.Sums{}
		for {
			page, err := service.Totals(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, total := range page {
				sums := total.Sums
				total.Sums, total.Day = usage.Sums{}, total.Day.UTC()
				got[total] = sums
			}
			if len(page) < q.Limit {
				break
			}
			q.After = &page[len(page)-1]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-records +totals):\n%s", q, diff)
		}
	}
	w.checkTotals(db)
}

// checkTotals runs the ledger check, which compares all totals with the records.
func (w *leaseWorld) checkTotals(db *postgres.DB) {
	t := w.T
	t.Helper()
	report, err := moneystore.NewLedger(db).Check(t.Context(), time.Unix(0, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if (c.Name == "usage_equals_totals" || c.Name == "totals_of_weeks" || c.Name == "totals_of_models") && (c.Differing > 0 || c.Compared == 0) {
			t.Errorf("self-check: %+v", c)
		}
	}
}

// useAtRandom settles requests of the last weeks, some of them twice.
func (w *leaseWorld) settleRandomUsage(r *rand.Rand, db *postgres.DB, customers []*storetest.Customer) []used {
	s := w.Session(leasestore.NewLeases(db), "proxy")
	today := time.Now().UTC().Truncate(24 * time.Hour)
	var records []used
	var events []event.Usage
	for n := range int64(200) {
		e := customers[r.IntN(len(customers))].Event(s, n+1, r.Int64N(3))
		at := today.Add(-time.Duration(r.IntN(20*24*60)) * time.Minute)
		e.RequestID, e.Model = ident.Request.Format(ident.NewAt(at)), []string{"a", "b", "c"}[r.IntN(3)]
		e.Estimated = r.IntN(3) == 0
		if r.IntN(3) == 0 {
			e.Status = event.ClientGone
		}
		some := func() int64 { return max(r.Int64N(60)-40, 0) }
		e.Usage = price.Usage{
			Input: some(), CachedInput: some(), CacheWrite5m: some(), CacheWrite1h: some(), CacheWrite30m: some(), CacheWrite12h: some(), CacheWriteOther: some(),
			Output: some(), Reasoning: some(), AudioIn: some(), AudioOut: some(), ImageIn: some(), ImageOut: some(), Images: some(), Seconds: some(),
			ServerToolRequests: some(),
		}
		records, events = append(records, used{at, e}), append(events, e)
	}
	for len(events) > 0 {
		n := min(1+r.IntN(60), len(events))
		for range 1 + r.IntN(2) {
			w.Settle(db, events[:n]...)
		}
		events = events[n:]
	}
	return records
}

func randomQuery(r *rand.Rand, customers []*storetest.Customer) usage.TotalQuery {
	is := func() bool { return r.IntN(2) == 0 }
	q := usage.TotalQuery{By: usage.Group{Day: is(), Account: is(), Key: is(), Model: is()}, Limit: 1 + r.IntN(40)}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	if is() {
		q.From = today.AddDate(0, 0, -r.IntN(25))
	}
	if is() {
		q.To = today.AddDate(0, 0, 1-r.IntN(15))
	}
	switch c := customers[r.IntN(len(customers))]; r.IntN(5) {
	case 0:
		q.AccountID = account.ID(c.Account)
	case 1:
		q.KeyID = key.ID(c.Key)
	}
	if r.IntN(3) == 0 {
		q.Model = "b"
	}
	if zone := storetest.Zones[r.IntN(len(storetest.Zones))]; q.AccountID != (account.ID{}) || q.KeyID != (key.ID{}) {
		q.From, q.To, q.Zone = today.AddDate(0, 0, -r.IntN(25)), today.AddDate(0, 0, r.IntN(3)), zone
	}
	return q
}

// day returns the day of the record in the zone of the query.
func (u *used) day(q *usage.TotalQuery) time.Time {
	at := u.at
	if q.Zone != nil {
		at = at.In(q.Zone)
	}
	return time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
}

// addTo adds the record to its group if it matches the query.
func (u *used) addTo(totals map[usage.Total]usage.Sums, q *usage.TotalQuery) {
	of, _ := ident.Account.Parse(u.AccountID)
	by, _ := ident.Key.Parse(u.KeyID)
	if !u.matches(q) {
		return
	}
	group := usage.Total{Day: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)}
	if q.By.Day {
		group.Day = u.day(q)
	}
	if q.By.Account {
		group.AccountID = account.ID(of)
	}
	if q.By.Key {
		group.KeyID = key.ID(by)
	}
	if q.By.Model {
		group.Model = u.Model
	}
	s, c := totals[group], &u.Usage.Usage
	s.Requests++
	if u.Estimated {
		s.Estimated++
	}
	if u.Status == event.ClientGone {
		s.ClientGone++
	}
	s.Input, s.CachedInput, s.Output = s.Input+c.Input, s.CachedInput+c.CachedInput, s.Output+c.Output
	s.CacheWrite += c.CacheWrite5m + c.CacheWrite1h + c.CacheWrite30m + c.CacheWrite12h + c.CacheWriteOther
	s.Reasoning, s.AudioIn, s.AudioOut = s.Reasoning+c.Reasoning, s.AudioIn+c.AudioIn, s.AudioOut+c.AudioOut
	s.ImageIn, s.ImageOut, s.Images = s.ImageIn+c.ImageIn, s.ImageOut+c.ImageOut, s.Images+c.Images
	s.Seconds, s.ServerToolRequests, s.Cost = s.Seconds+c.Seconds, s.ServerToolRequests+c.ServerToolRequests, s.Cost+u.Cost
	totals[group] = s
}
