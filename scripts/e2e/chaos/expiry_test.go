package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// A credit expires while Postgres is away and requests go on. To the nano-unit, it has paid for the requests that began before, and the
// rest of it has expired; the requests of the outage are paid by the other credit.
func TestCreditExpiresExactlyWhilePostgresIsAway(t *testing.T) {
	rig.Long(t)
	r, begin := postgresAway(t)
	l := startLoadOn(t, r, 0)
	expires := time.Now().Add(30 * time.Second).Truncate(time.Second)
	given, err := r.Admin.CreateCredit(t.Context(), l.account.ID, nil, adminclient.CreditCreate{
		Amount: "50.00", Kind: adminclient.CreditKindPromotion, Reference: t.Name(), ExpiresAt: &expires,
	})
	if err != nil {
		t.Fatal(err)
	}

	collectIdleUnits(t, r, l.account.Key, l.model, outageProxy, rig.DataPlane(outageProxy))
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	l.clients.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			l.note(l.ask(context.WithoutCancel(ctx), outageProxy, n%2 == 1))
			for range 5 { // so slowly that idle units last
				pause(ctx)
			}
		}
	})
	const around = 3 * time.Second
	awaitTime(t, expires.Add(-around))
	end := begin()
	awaitTime(t, expires.Add(around))
	l.await(t, 10, answered)
	end()
	l.await(t, 20, answered)
	l.finish()
	checkExpired(t, l, given.Value.ID, expires)
}

func awaitTime(t *testing.T, at time.Time) {
	t.Helper()
	rig.Await(t, "a time", func(context.Context) error {
		if left := time.Until(at); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
}

// checkExpired compares a promotion with the usage records.
func checkExpired(t *testing.T, l *load, id string, expires time.Time) {
	t.Helper()
	l.r.AwaitSettled(t)
	balance := l.account.AwaitIdle(t)
	usage, err := l.account.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var before, after money.Nano
	for _, u := range usage {
		cost, err := money.Parse(u.Cost)
		if err != nil {
			t.Fatal(err)
		}
		request, err := ident.Request.Parse(u.RequestID)
		if err != nil {
			t.Fatal(err)
		}
		if request.Time().Before(expires) {
			before += cost
		} else {
			after += cost
		}
	}
	const amount = 50 * money.Unit
	if before == 0 || after == 0 {
		t.Errorf("requests for %s began before the expiry and for %s after it; want some of both", before, after)
	}
	if want := credit - after; balance != want {
		t.Errorf("the balance is %s; want %s", balance, want)
	}
	// Idle units of the proxy are outstanding, too, so that a part may be held for an hour.
	_, err = l.r.Postgres(t).Exec(t.Context(), "update credits set expired_at = expired_at - interval '1 hour' where expired_at is not null")
	if err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "the rest of the credit to expire", func(ctx context.Context) error {
		listed, err := l.r.Admin.ListCredits(ctx, l.account.ID, nil)
		if err != nil {
			return err
		}
		for _, c := range listed.Value.Data {
			if c.ID == id && (c.Used != before.String() || c.Expired != (amount-before).String()) {
				return fmt.Errorf("%s are used and %s expired, %s are held; want %s and %s", c.Used, c.Expired, c.Held, before, amount-before)
			}
		}
		return nil
	})
	entries, err := l.r.Admin.ListLedger(t.Context(), l.account.ID, &adminclient.ListLedgerParams{Kind: new(adminclient.TransactionKindExpiry)})
	if err != nil {
		t.Fatal(err)
	}
	if booked := entries.Value.Data; len(booked) == 0 || !booked[len(booked)-1].EffectiveAt.Equal(expires) {
		t.Errorf("booked %+v; want the first with the time %s", booked, expires)
	}
	checkInvariants(t, l.r)
	t.Logf("%d requests, %s before the expiry and %s after it; booked in %d parts", len(usage), before, after, len(entries.Value.Data))
}
