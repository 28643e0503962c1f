package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// Four proxies serve an account with a large balance. At least 95 of 100 requests are admitted
// from units that the proxies hold, without a round trip.
func TestAccountWithLargeBalanceIsAdmittedLocally(t *testing.T) {
	r := rig.Get(t)
	l := startLoad(t, clients)
	for proxy, part := range r.DataPlanes() {
		before, err := admissions(t.Context(), r, "local", part)
		if err != nil {
			t.Fatal(err)
		}
		rig.Await(t, part+" to hold a slice", func(ctx context.Context) error {
			now, err := admissions(ctx, r, "local", part)
			if err == nil && now == before {
				err = fmt.Errorf("proxy %d admits as before", proxy)
			}
			return err
		})
	}
	count := func(mode string) float64 {
		n, err := admissions(t.Context(), r, mode, r.DataPlanes()...)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, asked := count("local"), count("synchronous")
	l.await(t, 1000, answered)
	without, with := count("local")-before, count("synchronous")-asked
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

// admissions returns the number of requests that proxies admitted in a mode: "local", from
// units that they held, or "synchronous".
func admissions(ctx context.Context, r *rig.Rig, mode string, parts ...string) (float64, error) {
	return r.Sum(ctx, `mgw_lease_admissions_total{mode="`+mode+`"}`, parts...)
}

// Every live proxy confirms revocations. The time that this takes is logged and not checked,
// because it depends on the machine.
func TestRevocationsAreConfirmedByEveryProxy(t *testing.T) {
	r := rig.Get(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	const keys = 50
	var took []time.Duration
	for range keys {
		id, secret := account.NewKey(t, "")
		for range dataPlanes {
			if status := <-retryingCrowd(t, r, 1, secret, model, len(took)%dataPlanes); status != 200 {
				t.Errorf("got %d; want an answer", status)
			}
		}
		began := time.Now()
		account.Revoke(t, id)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("%d revocations with %d proxies: p50 %s, p99 %s", keys, dataPlanes, took[keys/2].Round(time.Microsecond), took[keys*99/100].Round(time.Microsecond))
	checkCharged(t, r, account)
}
