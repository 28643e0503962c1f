package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

const (
	// cabinets is the number of concurrent clients. Each repeats a round of all requests that a
	// cabinet backend sends.
	cabinets = 4
	// kills is how often a control plane is killed during the test.
	kills = 6
)

// Two control planes serve cabinets while one after the other is killed. Repeating a failed
// request at either of them succeeds, and nothing is done twice.
func TestAdminAPIWhileControlPlanesAreKilled(t *testing.T) {
	r := rig.Get(t)
	c := &cabinet{t: t, admins: r.Admins(t), name: t.Name()}
	var (
		working sync.WaitGroup
		over    atomic.Bool
	)
	for i := range cabinets {
		working.Go(func() {
			for round := 0; !over.Load(); round++ {
				c.round(fmt.Sprintf("%d-%d", i, round))
			}
		})
	}
	for i, planes := 0, r.ControlPlanes(); i < kills; i++ {
		restarted := r.Kill(t, planes[i%len(planes)])
		restarted()
	}
	over.Store(true)
	working.Wait()
	if c.repeated.Load() == 0 {
		t.Error("no request was repeated, so that the kills had no effect")
	}
	t.Logf("%d requests, %d of them repeated, over %d kills", c.asked.Load(), c.repeated.Load(), kills)
	r.AwaitSessions(t)
	check, err := r.Admin.CheckLedger(t.Context(), nil)
	if err != nil || !check.Value.OK {
		t.Errorf("ledger check: got %s, %v", check, err)
	}
}

// cabinet is a client of the admin API that repeats requests without an answer.
type cabinet struct {
	t               *testing.T
	admins          []*adminclient.Client
	name            string
	asked, repeated atomic.Int64
}

// do repeats a call with one Idempotency-Key, at the control planes in turn, until one of them
// answers. Only calls without an answer and internal errors are repeated.
func do[T any](
	c *cabinet, what string, want int, call func(context.Context, *adminclient.Client) (*adminclient.Response[T], error),
) (got *adminclient.Response[T]) {
	attempt := 0
	rig.Await(c.t, what, func(ctx context.Context) error {
		attempt++
		c.asked.Add(1)
		if attempt > 1 {
			c.repeated.Add(1)
		}
		a, err := call(ctx, c.admins[attempt%len(c.admins)])
		if e, ok := errors.AsType[*adminclient.Error](err); ok && e.StatusCode < http.StatusInternalServerError {
			c.t.Fatalf("%s: %v after %d attempts", what, err, attempt)
		}
		if err != nil {
			return err
		}
		if a.StatusCode == http.StatusAccepted { // a revocation that is not confirmed yet
			return fmt.Errorf("status %d", a.StatusCode)
		}
		got = a
		return nil
	})
	if got.StatusCode != want {
		c.t.Errorf("%s: got %d after %d attempts; want %d: %s", what, got.StatusCode, attempt, want, got)
	}
	return got
}

// round creates an account with money and two keys, revokes one of them, and checks that each
// exists once.
func (c *cabinet) round(id string) {
	key := func(what string) *string { return new(c.name + " " + id + " " + what) }
	account := do(c, "create an account", http.StatusCreated, func(ctx context.Context, a *adminclient.Client) (*adminclient.Response[adminclient.Account], error) {
		return a.CreateAccount(ctx, &adminclient.CreateAccountParams{IdempotencyKey: key("account")},
			adminclient.AccountCreate{Name: id, ExternalID: key("account")})
	})
	of := account.Value.ID
	for n := range 2 {
		// The repetition of a booking whose answer was lost gets 201 because of its idempotency
		// key, or 200 because of its reference.
		rig.Await(c.t, "credit", func(ctx context.Context) error {
			c.asked.Add(1)
			_, err := c.admins[n].CreateCredit(ctx, of, &adminclient.CreateCreditParams{IdempotencyKey: key(fmt.Sprint("credit", n))},
				adminclient.CreditCreate{Amount: "1.50", Kind: adminclient.CreditKindPayment, Reference: *key(fmt.Sprint("credit", n))})
			if err != nil {
				c.repeated.Add(1)
			}
			return err
		})
	}
	var keys []string
	for n := range 2 {
		made := do(c, "issue a key", http.StatusCreated, func(ctx context.Context, a *adminclient.Client) (*adminclient.Response[adminclient.IssuedKey], error) {
			return a.CreateKey(ctx, of, &adminclient.CreateKeyParams{IdempotencyKey: key(fmt.Sprint("key", n))}, adminclient.KeyCreate{Name: "k"})
		})
		keys = append(keys, made.Value.ID)
	}
	do(c, "limit a key", http.StatusOK, func(ctx context.Context, a *adminclient.Client) (*adminclient.Response[adminclient.Key], error) {
		return a.UpdateKey(ctx, keys[0], nil, adminclient.KeyPatch{Name: new("renamed")})
	})
	do(c, "revoke a key", http.StatusOK, func(ctx context.Context, a *adminclient.Client) (*adminclient.Response[adminclient.Revocation], error) {
		return a.RevokeKey(ctx, keys[1], &adminclient.RevokeKeyParams{IdempotencyKey: key("revoke")})
	})
	c.checkOnce(of, *key("account"))
}

// checkOnce checks that every object of a round exists once.
func (c *cabinet) checkOnce(account, externalID string) {
	found := do(c, "find the account", http.StatusOK, func(ctx context.Context, a *adminclient.Client) (*adminclient.Response[adminclient.AccountList], error) {
		return a.ListAccounts(ctx, &adminclient.ListAccountsParams{ExternalID: &externalID})
	})
	if data := found.Value.Data; len(data) != 1 || data[0].ID != account || data[0].Balance.Balance != "3.00" {
		c.t.Errorf("the account: %s; want it once, with 3.00", found.Body)
	}
	keys := do(c, "list the keys", http.StatusOK, func(ctx context.Context, a *adminclient.Client) (*adminclient.Response[adminclient.KeyList], error) {
		return a.ListKeys(ctx, account, nil)
	})
	if data := keys.Value.Data; len(data) != 2 || data[0].Name != "renamed" || data[1].Status != adminclient.KeyStatusRevoked {
		c.t.Errorf("the keys: %s; want two, one renamed, one revoked", keys.Body)
	}
	booked := do(c, "list the bookings", http.StatusOK, func(ctx context.Context, a *adminclient.Client) (*adminclient.Response[adminclient.TransactionList], error) {
		return a.ListLedger(ctx, account, nil)
	})
	if len(booked.Value.Data) != 2 {
		c.t.Errorf("the bookings: %s; want two", booked.Body)
	}
}
