package webhookstore_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/spendlimit"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/limit"
	"modelgateway/shared/money"
)

// limit creates a limit of an account with a window that is open, and returns it with the pool of the window.
func (w *leaseWorld) limit(db *postgres.DB, c *storetest.Customer, amount int64, window limit.Window) (l spendlimit.Limit, pool int64) {
	w.T.Helper()
	l, _, err := accountstore.NewSpendLimits(db).Create(w.T.Context(), spendlimit.Limit{
		ID: spendlimit.ID(ident.New()), AccountID: account.ID(c.Account), Name: "team", Amount: money.Nano(amount),
		Window: window, Number: 1 + rand.Int64N(1<<34-1),
	})
	if err != nil {
		w.T.Fatal(err)
	}
	span, err := window.At(time.Now().UnixMilli())
	if err != nil {
		w.T.Fatal(err)
	}
	pool = limit.Pool(l.Number, span.Number)
	w.Exec(`insert into pools (id, account_id, kind, limit_number, total, free, starts_at, ends_at) overriding system value
		values ($1, $2, 2, $3, $4, $4, to_timestamp($5 / 1000.0), to_timestamp(nullif($6::bigint, 0) / 1000.0))`,
		pool, c.Account, l.Number, amount, span.StartMS, span.EndMS)
	return l, pool
}

// shares returns the shares that were alerted since the last call, with what was spent of how much.
func (w *leaseWorld) shares() []string {
	w.T.Helper()
	var told []string
	for _, text := range w.events() {
		facts, ok := strings.CutPrefix(text, string(webhook.LimitShareSpent)+" ")
		if !ok {
			continue
		}
		var f webhook.Facts
		if err := json.Unmarshal([]byte(facts), &f); err != nil {
			w.T.Fatal(err)
		}
		told = append(told, fmt.Sprintf("%d: %d of %d", f.Percent, int64(*f.Spent), int64(*f.Amount)))
	}
	return told
}

// Each share of a window is alerted when it is spent, and once, whatever happens to the limit later.
func TestSharesOfAWindowAreAlertedOnce(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, s := accountstore.NewSpendLimits(db), w.Session(leasestore.NewLeases(db), "proxy")
	c := w.Customer(10_000, storetest.Unlimited, 5)
	l, pool := w.limit(db, c, 1000, limit.Window{Period: limit.Day, TimeZone: "UTC"})
	n := int64(0)
	spend := func(cost int64) {
		n++
		e := c.Event(s, n, cost)
		e.Limits = []int64{pool}
		w.Settle(db, e)
		w.Settle(db, e) // delivered again
	}
	amount := func(amount money.Nano) {
		t.Helper()
		if _, _, err := store.Update(t.Context(), l.ID, (&spendlimit.Patch{Amount: &amount}).Apply); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, want ...string) {
		t.Helper()
		if got := w.shares(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: told %q; want %q", what, got, want)
		}
	}

	spend(499)
	want("below the half")
	spend(1)
	want("the half", "50: 500 of 1000")
	spend(250)
	amount(900)
	want("the amount is lowered", "80: 750 of 900")
	amount(2000)
	spend(850)
	want("80 % again, of a raised limit")
	if _, _, err := store.Reset(t.Context(), l.ID, ident.New()); err != nil {
		t.Fatal(err)
	}
	spend(1700)
	want("after a reset")
	spend(300)
	want("all", "100: 2000 of 2000")
	spend(5)
	want("more than all")
	w.Check()
}

// An event that crosses several shares causes the alert of each. That of a removed limit causes none.
func TestSharesThatAreCrossedTogether(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	s, c := w.Session(leasestore.NewLeases(db), "proxy"), w.Customer(10_000, storetest.Unlimited, 5)
	l, pool := w.limit(db, c, 1000, limit.Window{Period: limit.Month, TimeZone: "UTC"})
	removed, other := w.limit(db, c, 1000, limit.Window{Period: limit.Forever})
	if _, err := accountstore.NewSpendLimits(db).Remove(t.Context(), removed.ID, etag.Match{}); err != nil {
		t.Fatal(err)
	}
	e := c.Event(s, 1, 1300)
	e.Limits = []int64{pool, other}
	w.Settle(db, e)

	told := w.events()
	if len(told) != 3 {
		t.Fatalf("told %q; want three alerts", told)
	}
	var f webhook.Facts
	if err := json.Unmarshal([]byte(strings.TrimPrefix(told[0], string(webhook.LimitShareSpent))), &f); err != nil {
		t.Fatal(err)
	}
	ends := storetest.Scalar[time.Time](w, "select ends_at from pools where id = $1", pool)
	if f.Limit == nil || f.Limit.ID != l.ID.String() || f.Limit.Name != "team" || f.Limit.Scope != limit.Account || f.Limit.Period != limit.Month ||
		f.Limit.ResetsAt == nil || !f.Limit.ResetsAt.Equal(ends) || !f.Limit.StartsAt.Before(ends) {
		t.Errorf("told %s", told[0])
	}
}

// Settlements on two replicas, which get each batch, alert each share of each window once, and what they say was true.
func TestConcurrentSettlementsAlertEachShareOnce(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	dbs := []*postgres.DB{w.Replica(), w.Replica()}
	s := w.Session(leasestore.NewLeases(dbs[0]), "proxy")
	var events []event.Usage
	for range 8 {
		c := w.Customer(1000, storetest.Unlimited, 5)
		_, day := w.limit(dbs[0], c, 1000, limit.Window{Period: limit.Day, TimeZone: "UTC"})
		_, ever := w.limit(dbs[0], c, 900, limit.Window{Period: limit.Forever})
		for range 40 {
			e := c.Event(s, int64(len(events)+1), 25)
			e.Limits = []int64{day, ever}
			events = append(events, e)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })

	var done sync.WaitGroup
	for replica, db := range dbs {
		done.Go(func() {
			for i := 0; i < len(events); i += 10 {
				items := settle.DecodeBatch(storetest.Batch(t, int64(s), events[i:i+10]...))
				if _, err := settle.New(moneystore.NewSettlement(db), nil).Settle(t.Context(), items); err != nil {
					t.Error(replica, err)
				}
			}
		})
	}
	done.Wait()

	counts := map[string]int{}
	for _, text := range w.shares() {
		var percent, spent, amount int64
		if _, err := fmt.Sscanf(text, "%d: %d of %d", &percent, &spent, &amount); err != nil {
			t.Fatal(text, err)
		}
		counts[fmt.Sprintf("%d of %d", percent, amount)]++
		if spent*100 < percent*amount || spent > 1000 {
			t.Errorf("told %s", text)
		}
	}
	for _, amount := range []int{900, 1000} {
		for _, percent := range []int{50, 80, 100} {
			if name := fmt.Sprintf("%d of %d", percent, amount); counts[name] != 8 {
				t.Errorf("%s was told %d times; want once for each of 8 windows", name, counts[name])
			}
		}
	}
	w.CheckNoDeadlock(dbs...)
}

// The alert of a limit of a project names the project.
func TestShareOfALimitOfAProjectNamesTheProject(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c, project := w.Customer(10_000, storetest.Unlimited, 5), ident.New()
	l, pool := w.limit(db, c, 1000, limit.Window{Period: limit.Day, TimeZone: "UTC"})
	w.Exec("insert into projects (id, account_id, name, revision) values ($1, $2, 'project', 1)", project, c.Account)
	w.Exec("update limits set project_id = $1 where number = $2", project, l.Number)
	w.events()
	e := c.Event(w.Session(leasestore.NewLeases(db), "proxy"), 1, 600)
	e.ProjectID, e.Limits = ident.Project.Format(project), []int64{pool}
	w.Settle(db, e)
	for _, text := range w.events() {
		if facts, ok := strings.CutPrefix(text, string(webhook.LimitShareSpent)+" "); ok {
			var f webhook.Facts
			if err := json.Unmarshal([]byte(facts), &f); err != nil {
				t.Fatal(err)
			}
			if f.Limit.Scope != limit.Project || f.Limit.ProjectID != e.ProjectID {
				t.Errorf("got %+v; want the project", f.Limit)
			}
			return
		}
	}
	t.Error("there is no alert")
}
