package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// Four proxies serve an account that has plenty: at least 95 of 100 requests
// are admitted with what the proxies hold, without asking anybody.
func TestRichAccountIsAdmittedWithoutAHop(t *testing.T) {
	r := rig.Get(t)
	l := startLoad(t, clients)
	local := func() (n float64) { return admissions(t, r, "local") }
	for proxy, part := range r.DataPlanes() {
		before, err := r.LocalAdmissions(t.Context(), part)
		if err != nil {
			t.Fatal(err)
		}
		rig.Await(t, part+" to hold a slice", func(ctx context.Context) error {
			now, err := r.LocalAdmissions(ctx, part)
			if err == nil && now == before {
				err = fmt.Errorf("proxy %d admits as before", proxy)
			}
			return err
		})
	}
	before, asked := local(), admissions(t, r, "synchronous")
	l.await(t, 1000, answered)
	without, with := local()-before, admissions(t, r, "synchronous")-asked
	const least = 0.95
	if share := without / (without + with); share < least {
		t.Errorf("%.1f %% of %v were admitted without a hop; want at least %.0f %%", 100*share, without+with, 100*least)
	} else {
		t.Logf("%.1f %% of %v were admitted without a hop", 100*share, without+with)
	}
	all := l.finish()
	checkOnlyUnavailable(t, all)
	checkBills(t, l, all, credit)
}

// admissions is how many requests all proxies have admitted in a way.
func admissions(t *testing.T, r *rig.Rig, mode string) float64 {
	t.Helper()
	n, err := r.Sum(t.Context(), `mgw_lease_admissions_total{mode="`+mode+`"}`, r.DataPlanes()...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Revocations are confirmed by every live proxy. How long that took is told, not
// judged: it is the machine's as much as ours.
func TestRevocationsAreConfirmedByEveryProxy(t *testing.T) {
	r := rig.Get(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	const keys = 50
	var took []time.Duration
	for range keys {
		id, secret := account.NewKey(t, "")
		for range dataPlanes {
			if status := <-crowd(t, r, 1, secret, model, len(took)%dataPlanes); status != 200 {
				t.Errorf("got %d; want an answer", status)
			}
		}
		began := time.Now()
		account.Revoke(t, id)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("%d revocations with %d proxies: p50 %s, p99 %s", keys, dataPlanes, took[keys/2].Round(time.Microsecond), took[keys*99/100].Round(time.Microsecond))
	checkCharged(t, account)
}
