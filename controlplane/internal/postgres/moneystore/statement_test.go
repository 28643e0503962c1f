package moneystore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// yesterday moves all transactions a day back.
func (w *world) yesterday() {
	w.t.Helper()
	for _, statement := range []string{
		"alter table ledger_transactions disable trigger ledger_transactions_append_only",
		"update ledger_transactions set created_at = created_at - interval '1 day'",
		"alter table ledger_transactions enable trigger ledger_transactions_append_only",
		"create table moved as table usage_daily",
		"update moved set booked_on = booked_on - 1",
		"delete from usage_daily",
		"insert into usage_daily table moved",
		"drop table moved",
		"alter table usage_records disable trigger usage_records_append_only",
		"update usage_records set settled_at = settled_at - interval '1 day'",
		"alter table usage_records enable trigger usage_records_append_only",
	} {
		_, err := w.db.Pool().Exec(w.t.Context(), statement)
		storetest.Check(w.t, err)
	}
}

// booked sums the ledger's entries of an account and kind in a period.
func (w *world) booked(a *worldAccount, kind ledger.Kind, from, to time.Time) money.Nano {
	w.t.Helper()
	var sum int64
	storetest.Check(w.t, w.db.Pool().QueryRow(w.t.Context(), `
		select coalesce(sum(e.amount), 0) from ledger_entries e join ledger_transactions t on t.id = e.transaction_id
		where e.account_id = $1 and ($2 = '' or t.kind = $2) and t.created_at >= $3 and t.created_at < $4`,
		ident.UUID(a.id), string(kind), from, to).Scan(&sum))
	return money.Nano(sum)
}

// The opening balance and the transactions of a statement give the closing balance,
// which is the next opening balance, and every amount equals the ledger's.
func TestStatementsEqualLedger(t *testing.T) {
	t.Parallel()
	const days = 6
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, 2)
	for d := range days {
		if d > 0 {
			w.yesterday()
		}
		for range r.IntN(25) {
			storetest.Check(t, w.step(t.Context(), r, &w.accounts[r.IntN(len(w.accounts))]))
		}
		storetest.Check(t, w.charge(t.Context(), &w.accounts[0], 3)) // so that no check goes empty-handed
		storetest.Check(t, w.post(t.Context(), &w.accounts[0], ledger.Payment, money.Unit))
	}
	statements := statement.NewService(moneystore.NewStatements(w.db))
	today := time.Now().UTC().Truncate(24 * time.Hour)
	first := today.AddDate(0, 0, -days)
	groups := []usage.Group{{}, {Day: true}, {Key: true, Model: true}, {Day: true, Key: true, Model: true}}
	for i := range w.accounts {
		a := &w.accounts[i]
		for from := first; from.Before(today); from = from.AddDate(0, 0, 1) {
			for to := from.AddDate(0, 0, 1); !to.After(today.AddDate(0, 0, 1)); to = to.AddDate(0, 0, 1) {
				zone := storetest.Zones[r.IntN(len(storetest.Zones))]
				q := statement.Query{AccountID: a.id, Period: statement.Period{From: from, To: to}, Zone: zone, By: groups[r.IntN(len(groups))]}
				got, err := statements.Make(t.Context(), q)
				storetest.Check(t, err)
				from, to := q.Moments()
				want := []money.Nano{
					w.booked(a, "", time.Unix(0, 0), from), w.booked(a, ledger.Payment, from, to), w.booked(a, ledger.Promotion, from, to),
					w.booked(a, ledger.Refund, from, to), w.booked(a, ledger.Correction, from, to), w.booked(a, ledger.Expiry, from, to),
					-w.booked(a, ledger.Usage, from, to),
					w.booked(a, "", time.Unix(0, 0), to),
				}
				sums := []money.Nano{
					got.Opening, got.Payments, got.Promotions, got.Refunds, got.Corrections, got.Expired, got.Usage, got.Closing,
				}
				if diff := cmp.Diff(want, sums); diff != "" {
					t.Errorf("account %d, %s to %s, %v (-ledger +statement):\n%s", i, from, to, zone, diff)
				}
				if got.Final && to.After(time.Now()) {
					t.Errorf("a period that has not ended is final: to %s", to)
				}
			}
		}
	}
	w.verify()
}

// A period is final when no running transaction can add an entry to it.
func TestStatementIsFinal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	store := moneystore.NewStatements(w.db)
	final := func(to time.Time) bool {
		found, err := store.Entries(t.Context(), statement.Query{AccountID: w.accounts[0].id, Period: statement.Period{To: to}}, 10)
		storetest.Check(t, err)
		return found.Final
	}
	tx, err := w.db.Pool().Begin(t.Context())
	storetest.Check(t, err)
	var began time.Time
	storetest.Check(t, tx.QueryRow(t.Context(), "select now()").Scan(&began))
	if !final(began.Add(-time.Hour)) {
		t.Error("an hour ago is not final")
	}
	if final(began.Add(time.Microsecond)) {
		t.Error("the period is final although a transaction that began in it is running")
	}
	storetest.Check(t, tx.Rollback(t.Context()))
	if !final(began.Add(time.Microsecond)) {
		t.Error("the period is not final after the last transaction that began in it")
	}
}

// Totals by any grouping have the same sum, page by page.
func TestTotals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	want := usage.Sums{}
	for n := range 20 {
		a := &w.accounts[n%3]
		storetest.Check(t, w.charge(t.Context(), a, money.Nano(n)))
		want.Requests++
		want.Input++
		want.Cost += money.Nano(n)
	}
	service := usage.NewService(usagestore.NewUsage(w.db))
	for bits := range 16 {
		for _, limit := range []int{1, 2, 100} {
			q := usage.TotalQuery{By: usage.Group{Day: bits&1 > 0, Account: bits&2 > 0, Key: bits&4 > 0, Model: bits&8 > 0}, Limit: limit}
			var sum usage.Sums
			groups := 0
			for {
				page, err := service.Totals(t.Context(), q)
				storetest.Check(t, err)
				for i := range page {
					sum.Requests += page[i].Requests
					sum.Input += page[i].Input
					sum.Cost += page[i].Cost
					groups++
				}
				if len(page) < limit {
					break
				}
				q.After = &page[len(page)-1]
			}
			expected := 1
			if q.By.Account || q.By.Key {
				expected = 3
			}
			if diff := cmp.Diff(want, sum); diff != "" || (groups != expected && !q.By.Day) {
				t.Errorf("%+v, %d at a time: %d groups (-want +got):\n%s", q.By, limit, groups, diff)
			}
		}
	}
	a := &w.accounts[1]
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for name, tt := range map[string]struct {
		q    usage.TotalQuery
		want int64
	}{
		"account":     {usage.TotalQuery{AccountID: a.id}, 7},
		"key":         {usage.TotalQuery{KeyID: a.key}, 7},
		"both":        {usage.TotalQuery{AccountID: w.accounts[0].id, KeyID: a.key}, 0},
		"model":       {usage.TotalQuery{Model: "m"}, 20},
		"other model": {usage.TotalQuery{Model: "x", AccountID: a.id}, 0},
		"before":      {usage.TotalQuery{To: today.AddDate(0, 0, -1)}, 0},
		"after":       {usage.TotalQuery{From: today.AddDate(0, 0, 2), AccountID: a.id}, 0},
		"around":      {usage.TotalQuery{From: today.AddDate(0, 0, -1), To: today.AddDate(0, 0, 2)}, 20},
	} {
		tt.q.Limit = 10
		found, err := service.Totals(t.Context(), tt.q)
		storetest.Check(t, err)
		got := int64(0)
		for i := range found {
			got += found[i].Requests
		}
		if got != tt.want {
			t.Errorf("%s: got %d requests; want %d", name, got, tt.want)
		}
	}
}

// The ledger check finds wrong totals.
func TestLedgerCheckFindsWrongTotals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	storetest.Check(t, w.post(t.Context(), &w.accounts[0], ledger.Payment, money.Unit))
	storetest.Check(t, w.charge(t.Context(), &w.accounts[0], 5))
	w.verify()
	for _, change := range []string{"cost = cost + 1", "requests = requests + 1", "used_on = used_on + 1", "model = 'x'"} {
		_, err := w.db.Pool().Exec(t.Context(), "create table before as table usage_daily")
		storetest.Check(t, err)
		_, err = w.db.Pool().Exec(t.Context(), "update usage_daily set "+change)
		storetest.Check(t, err)
		report, err := moneystore.NewLedger(w.db).Check(t.Context(), time.Now().Add(-time.Hour), nil)
		storetest.Check(t, err)
		found := false
		for _, c := range report.Checks {
			found = found || (c.Name == "usage_equals_totals" && c.Differing > 0)
		}
		if !found {
			t.Errorf("%s: nothing was found", change)
		}
		_, err = w.db.Pool().Exec(t.Context(), "delete from usage_daily; insert into usage_daily table before; drop table before")
		storetest.Check(t, err)
	}
}
