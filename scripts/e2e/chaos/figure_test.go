package chaos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// Four proxies serve an account with a large balance. They admit at least 95 of 100 requests
// from idle units, without a lease request.
func TestAccountWithLargeBalanceIsAdmittedLocally(t *testing.T) {
	r := rig.Get(t)
	l := startLoad(t, clients)
	for proxy, part := range r.DataPlanes() {
		before, err := admissions(t.Context(), r, "local", part)
		if err != nil {
			t.Fatal(err)
		}
		rig.Await(t, part+" to admit from idle units", func(ctx context.Context) error {
			now, err := admissions(ctx, r, "local", part)
			if err == nil && now == before {
				err = fmt.Errorf("proxy %d has not admitted from idle units", proxy)
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
	local, synchronous := count("local"), count("synchronous")
	l.await(t, 1000, answered)
	local, synchronous = count("local")-local, count("synchronous")-synchronous
	const least = 0.95
	if share := local / (local + synchronous); share < least {
		t.Errorf("%.1f %% of %v of requests were admitted without a lease request; want at least %.0f %%", 100*share, local+synchronous, 100*least)
	} else {
		t.Logf("%.1f %% of %v of requests were admitted without a lease request", 100*share, local+synchronous)
	}
	all := l.finish()
	checkOnlyUnavailable(t, all)
	checkBills(t, l, all, credit)
}

// admissions returns the number of requests that proxies admitted in a mode: "local", from
// idle units, or "synchronous", by a lease request.
func admissions(ctx context.Context, r *rig.Rig, mode string, parts ...string) (float64, error) {
	return r.Sum(ctx, `mgw_lease_admissions_total{mode="`+mode+`"}`, parts...)
}

// Every live proxy confirms changes of keys. The time that this takes is logged and not checked,
// because it depends on the machine.
func TestChangesOfKeysAreConfirmedByEveryProxy(t *testing.T) {
	r := rig.Get(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Formats: []string{"chat"}})
	wait, longest := adminclient.WaitForApplied, "60s"
	applied := func(header http.Header, err error) {
		t.Helper()
		if err != nil || header.Get("Applied") != "true" {
			t.Fatalf("applied %q, %v", header.Get("Applied"), err)
		}
	}
	for _, kind := range []struct {
		name string
		do   func(id string)
	}{
		{"pauses", func(id string) {
			made, err := r.Admin.UpdateKey(t.Context(), id, &adminclient.UpdateKeyParams{Wait: &wait, Timeout: &longest}, adminclient.KeyPatch{Paused: new(true)})
			applied(made.Header, err)
		}},
		{"rotations", func(id string) {
			made, err := r.Admin.RotateKey(t.Context(), id, &adminclient.RotateKeyParams{Wait: &wait, Timeout: &longest}, adminclient.KeyRotation{OverlapSeconds: 3600})
			applied(made.Header, err)
		}},
		{"revocations", func(id string) {
			account.Revoke(t, id)
		}},
	} {
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
			kind.do(id)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("%d %s with %d proxies: p50 %s, p99 %s", keys, kind.name, dataPlanes, took[keys/2].Round(time.Microsecond), took[keys*99/100].Round(time.Microsecond))
	}
	checkCharged(t, r, account)
}
