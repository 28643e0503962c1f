package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/shared/apikey"
	"modelgateway/shared/money"
)

// An Account is an account that belongs to one test.
type Account struct {
	ID string
	// Key is the secret of a key without a limit.
	Key string
	// KeyID is that key's id.
	KeyID string

	rig *Rig
}

// An AccountSpec describes the account that a test needs.
type AccountSpec struct {
	// Credit is the balance in USD; 100 if empty, "0" for none.
	Credit string
	// Slots is the limit of concurrent requests; 1000 if zero.
	Slots int
}

var references atomic.Int64

// Unique returns a text that no other call returns.
func Unique() string { return strconv.FormatInt(references.Add(1), 10) }

// Account creates an account with money and a key.
func (r *Rig) Account(t *testing.T, spec AccountSpec) *Account {
	t.Helper()
	if spec.Slots == 0 {
		spec.Slots = 1000
	}
	if spec.Credit == "" {
		spec.Credit = "100"
	}

	answer, err := r.Admin.CreateAccount(t.Context(), nil,
		adminclient.AccountCreate{Name: t.Name(), MaxConcurrentRequests: &spec.Slots})
	if err != nil {
		t.Fatal(err)
	}

	a := &Account{ID: answer.Value.ID, rig: r}
	if spec.Credit != "0" {
		a.Credit(t, spec.Credit)
	}

	a.KeyID, a.Key = a.NewKey(t, "")
	return a
}

// Credit tops the account up.
func (a *Account) Credit(t *testing.T, amount string) {
	t.Helper()
	_, err := a.rig.Admin.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{
		Amount: amount, Kind: adminclient.CreditKindPayment, Reference: t.Name() + "-" + Unique(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// NewKey issues a key with a spend limit, or without if it is empty.
func (a *Account) NewKey(t *testing.T, limit string) (id, secret string) {
	t.Helper()
	create := adminclient.KeyCreate{Name: t.Name()}
	if limit != "" {
		create.SpendLimit = &limit
	}
	answer, err := a.rig.Admin.CreateKey(t.Context(), a.ID, nil, create)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Value.ID, answer.Value.Secret
}

// NewLimit creates a limit of the account, of one of its projects or of a key, and waits until all proxies have it.
func (a *Account) NewLimit(t *testing.T, limit adminclient.LimitCreate) *adminclient.SpendLimit {
	t.Helper()
	answer, err := a.rig.Admin.CreateLimit(t.Context(), a.ID, &adminclient.CreateLimitParams{Wait: new(adminclient.WaitForApplied)}, limit)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Value
}

// Windows returns the windows of a limit, newest first.
func (r *Rig) Windows(ctx context.Context, limitID string) ([]adminclient.LimitWindow, error) {
	answer, err := r.Admin.ListLimitWindows(ctx, limitID, nil)
	if err != nil {
		return nil, err
	}
	return answer.Value.Data, nil
}

// ImportKey imports a key of which only the hash is known, like the oldest keys.
func (a *Account) ImportKey(t *testing.T) (id, secret string) {
	t.Helper()
	key := apikey.Generate()
	answer, err := a.rig.Admin.ImportKeys(t.Context(), nil, adminclient.KeyImport{
		Keys: []adminclient.ImportedKey{{AccountID: a.ID, Name: t.Name(), Hash: a.rig.Hasher(t).Hash(key).String()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Value.Data[0].ID, key
}

// Hasher returns the hasher with which the stack hashes keys.
func (r *Rig) Hasher(t *testing.T) *apikey.Hasher {
	t.Helper()
	pepper, err := os.ReadFile(filepath.Join(r.dir, "secrets", "pepper"))
	if err != nil {
		t.Fatal(err)
	}
	hasher, err := apikey.NewHasher(bytes.TrimSpace(pepper))
	if err != nil {
		t.Fatal(err)
	}
	return hasher
}

// Revoke revokes a key and returns when the revocation is effective. It repeats the call while
// the control plane answers that the revocation is not effective yet.
func (a *Account) Revoke(t *testing.T, keyID string) {
	t.Helper()
	Await(t, "the revocation to be effective", func(ctx context.Context) error {
		answer, err := a.rig.Admin.RevokeKey(ctx, keyID, nil)
		if e, ok := errors.AsType[*adminclient.Error](err); ok && e.StatusCode < http.StatusInternalServerError {
			t.Fatalf("revoke: %v", err)
		}
		if err == nil && !answer.Value.Effective {
			err = fmt.Errorf("got %s", answer)
		}
		return err
	})
}

// Grant grants a model to the account and returns when every proxy knows.
func (a *Account) Grant(t *testing.T, model string) {
	t.Helper()
	if _, err := a.rig.Admin.GrantModel(t.Context(), a.ID, model, nil); err != nil {
		t.Fatalf("grant %s: %v", model, err)
	}
}

// Suspend suspends the account, so that all its keys are refused.
func (a *Account) Suspend(t *testing.T) {
	t.Helper()
	suspended := adminclient.AccountStatusSuspended
	_, err := a.rig.Admin.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{Status: &suspended})
	if err != nil {
		t.Fatal(err)
	}
}

// Balance holds the balance of an account.
type Balance struct{ Balance, Reserved, Available money.Nano }

// Balance returns the balance of the account as the control plane reports it.
func (a *Account) Balance(ctx context.Context) (Balance, error) {
	answer, err := a.rig.Admin.GetBalance(ctx, a.ID)
	if err != nil {
		return Balance{}, err
	}
	var b Balance
	var faults [3]error
	b.Balance, faults[0] = money.Parse(answer.Value.Balance)
	b.Reserved, faults[1] = money.Parse(answer.Value.Reserved)
	b.Available, faults[2] = money.Parse(answer.Value.Available)
	return b, errors.Join(faults[:]...)
}

// AwaitIdle waits until the account has no reservations, and returns its balance.
func (a *Account) AwaitIdle(t *testing.T) money.Nano {
	t.Helper()
	var b Balance
	Await(t, "the account's reservations to be released", func(ctx context.Context) (err error) {
		if b, err = a.Balance(ctx); err != nil {
			return err
		}
		if b.Reserved != 0 {
			return fmt.Errorf("%v is reserved", b.Reserved)
		}
		return nil
	})
	return b.Balance
}
