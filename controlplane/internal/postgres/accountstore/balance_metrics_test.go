package accountstore_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/shared/wire"
)

func TestAccountsAreCountedByTheStateOfTheirBalance(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	reg := prometheus.NewRegistry()
	metrics := account.NewBalanceMetrics(accountstore.NewAccounts(w.Replica()), reg)
	check := func(when string, want string) {
		t.Helper()
		if err := metrics.Update(t.Context()); err != nil {
			t.Fatal(err)
		}
		head := `
# HELP mgw_accounts Accounts by the state of their balance: negative, exhausted (zero, or a request was refused because of it), low (below the threshold) or sufficient.
# TYPE mgw_accounts gauge
`
		sum := `# HELP mgw_negative_balance Sum of the negative balances in currency units, as a positive number: credit that the operator did not want to give.
# TYPE mgw_negative_balance gauge
`
		counts, overdrawn, _ := strings.Cut(want, "|")
		if err := testutil.GatherAndCompare(reg, strings.NewReader(head+counts+sum+overdrawn), "mgw_accounts", "mgw_negative_balance"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("without accounts", `mgw_accounts{state="exhausted"} 0
mgw_accounts{state="low"} 0
mgw_accounts{state="negative"} 0
mgw_accounts{state="sufficient"} 0
|mgw_negative_balance 0
`)
	const unit = 1_000_000_000
	for _, pool := range []struct{ settled, alarms int64 }{
		{0, 0}, {5 * unit, 1}, {9 * unit, 3}, {10 * unit, 3}, {10 * unit, 0}, {11 * unit, 3}, {12*unit + unit/2, 0},
	} {
		c := w.Customer(10*unit, storetest.Unlimited, 5)
		w.Exec("update pools set settled = $2, raised_alarms = $3 where id = $1", c.Balance, pool.settled, pool.alarms)
	}
	check("with accounts", `mgw_accounts{state="exhausted"} 3
mgw_accounts{state="low"} 1
mgw_accounts{state="negative"} 2
mgw_accounts{state="sufficient"} 1
|mgw_negative_balance 3.5
`)
	c := w.Customer(unit, 0, 5)
	w.Exec("update pools set overrun = $2, late = $3 where id = any($1)", []wire.PoolID{c.Balance, c.Limit}, 2*unit+unit/2, unit/4)
	if err := metrics.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if want, of := map[string]float64{"mgw_balance_overrun": 2.5, "mgw_balance_late_charges": 0.25}[f.GetName()]; of && f.GetMetric()[0].GetGauge().GetValue() != want {
			t.Errorf("%s is %v; want %v", f.GetName(), f.GetMetric()[0].GetGauge().GetValue(), want)
		}
	}
}
