package moneystore_test

import (
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/money"
)

// differing returns the checks that found a difference, with the first row.
func differing(r ledger.Report) string {
	var found []string
	for _, c := range r.Checks {
		if c.Differing > 0 {
			found = append(found, c.Name+" "+strings.Fields(c.First.Row)[0])
		}
	}
	return strings.Join(found, ", ")
}

// The check of changed rows finds every wrong value, in rows that are newer than the
// stored sums and in rows that are part of them, and reports the first row.
func TestCheckChangedFindsEveryDifference(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	store := moneystore.NewLedger(w.db)
	compare := func() string {
		t.Helper()
		report, err := store.CheckChanged(t.Context())
		storetest.Check(t, err)
		return differing(report)
	}
	exec := func(query string) {
		t.Helper()
		_, err := w.db.Pool().Exec(t.Context(), query)
		storetest.Check(t, err)
	}
	tests := []struct{ name, falsify, repair, want string }{
		{
			"pool", "update pools set settled = settled + 1 where kind = 1", "update pools set settled = settled - 1 where kind = 1",
			"pool_conservation pool, ledger_equals_balances account, usage_equals_pools pool",
		},
		{
			"limit", "update pools set settled = settled + 1, free = free - 1 where kind = 2", "update pools set settled = settled - 1, free = free + 1 where kind = 2",
			"usage_equals_pools pool",
		},
		{"record", "update usage_records set cost = cost + 1", "update usage_records set cost = cost - 1", "usage_equals_ledger account, usage_equals_pools pool"},
		{
			"entry", "update ledger_entries set amount = amount - 1 where ledger_account = 'customer'", "update ledger_entries set amount = amount + 1 where ledger_account = 'customer'",
			"ledger_sums_to_zero transaction, ledger_equals_balances account, usage_equals_ledger account",
		},
	}
	exec("alter table usage_records disable trigger all")
	exec("do $$ declare part text; begin for part in select inhrelid::regclass from pg_inherits where inhparent = 'usage_records'::regclass loop execute format('alter table %s disable trigger append_only', part); end loop; end $$")
	exec("alter table ledger_entries disable trigger ledger_entries_append_only")
	exec("alter table ledger_transactions disable trigger ledger_transactions_append_only")
	// All rows are newer than the stored sums at first; then all but the newest are part of them.
	for _, kept := range []bool{false, true} {
		storetest.Check(t, w.post(t.Context(), &w.accounts[0], ledger.Payment, money.Unit))
		storetest.Check(t, w.charge(t.Context(), &w.accounts[0], 5))
		if kept {
			exec("update usage_records set settled_at = settled_at - interval '1 hour'")
			exec("update ledger_transactions set created_at = created_at - interval '1 hour'")
			exec("update ledger_check_state set summed_until = summed_until - interval '2 hours'")
			if got := compare(); got != "" {
				t.Fatalf("with sums that were just stored: %s", got)
			}
			var n int
			storetest.Check(t, w.db.Pool().QueryRow(t.Context(), "select count(*) from ledger_check_sums where used = 10").Scan(&n))
			if n != 2 {
				t.Errorf("sums of %d owners are stored; want those of account and key", n)
			}
			storetest.Check(t, w.charge(t.Context(), &w.accounts[1], 7))
		}
		if got := compare(); got != "" {
			t.Fatalf("kept %v: nothing was falsified, found was: %s", kept, got)
		}
		for _, tt := range tests {
			if kept && tt.name != "pool" && tt.name != "limit" {
				tt.falsify, tt.repair = newest(tt.falsify), newest(tt.repair)
			}
			exec(tt.falsify)
			if got := compare(); got != tt.want {
				t.Errorf("kept %v, %s: found %s; want %s", kept, tt.name, got, tt.want)
			}
			exec(tt.repair)
		}
	}
	storetest.Check(t, store.Forget(t.Context()))
	if got := compare(); got != "" {
		t.Errorf("after the sums were forgotten: %s", got)
	}
}

// newest restricts an update to rows that are not part of the stored sums.
func newest(update string) string {
	and := " where "
	if strings.Contains(update, " where ") {
		and = " and "
	}
	if strings.Contains(update, "usage_records") {
		return update + and + "settled_at > now() - interval '10 minutes'"
	}
	return update + and + "transaction_id in (select id from ledger_transactions where created_at > now() - interval '10 minutes')"
}

// The replica that updates the stored sums holds a lock for that. The others check with the sums that they find, and one
// of them updates the sums when the first has died.
func TestLedgerCheckGoesOnWhenTheReplicaThatUpdatesTheSumsDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	store, pool := moneystore.NewLedger(w.db), w.db.Pool()
	summedUntil := func() (moment time.Time) {
		t.Helper()
		storetest.Check(t, pool.QueryRow(t.Context(), "select summed_until from ledger_check_state").Scan(&moment))
		return moment
	}
	compare := func() {
		t.Helper()
		report, err := store.CheckChanged(t.Context())
		storetest.Check(t, err)
		if got := differing(report); got != "" || len(report.Checks) == 0 {
			t.Errorf("%d checks, which found %s", len(report.Checks), got)
		}
	}
	storetest.Check(t, w.post(t.Context(), &w.accounts[0], ledger.Payment, money.Unit))
	compare()
	_, err := pool.Exec(t.Context(), "update ledger_check_state set summed_until = summed_until - interval '2 hours'")
	storetest.Check(t, err)
	old := summedUntil()

	first, err := pool.Acquire(t.Context())
	storetest.Check(t, err)
	defer first.Release()
	var pid int
	var locked bool
	_, err = first.Exec(t.Context(), "begin")
	storetest.Check(t, err)
	storetest.Check(t, first.QueryRow(t.Context(), "select pg_backend_pid(), pg_try_advisory_xact_lock(7310013)").Scan(&pid, &locked))
	storetest.Check(t, w.charge(t.Context(), &w.accounts[0], 5))
	compare()
	if got := summedUntil(); !locked || !got.Equal(old) {
		t.Errorf("the sums were updated to %v while another replica does it", got)
	}

	_, err = pool.Exec(t.Context(), "select pg_terminate_backend($1, 10000)", pid) // waits for the end
	storetest.Check(t, err)
	compare()
	if got := summedUntil(); !got.After(old) {
		t.Error("nobody updates the sums after the death of the replica that did it")
	}
}
