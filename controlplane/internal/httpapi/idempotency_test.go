package httpapi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/propagation"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(1)
	params := &adminclient.CreateKeyParams{IdempotencyKey: new("once")}
	first, err := answered(b.api.CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"}))
	check(t, err)
	again, err := answered(b.api.CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"}))
	check(t, err)
	if again.StatusCode != http.StatusCreated || string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated: %d %s; want %s again", again.StatusCode, again.Body, first.Body)
	}
	other, err := answered(b.api.CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "another"}))
	check(t, err)
	problem(t, other.Problem, http.StatusConflict, "idempotency_conflict")
	elsewhere, err := answered(b.api.CreateKey(t.Context(), b.account(1).ID, params, adminclient.KeyCreate{Name: "k"}))
	check(t, err)
	problem(t, elsewhere.Problem, http.StatusConflict, "idempotency_conflict")
	// Each token has its own namespace of keys.
	stranger, err := answered(b.as(b.token(adminclient.ScopeCabinet)).CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"}))
	check(t, err)
	if stranger.StatusCode != http.StatusCreated || stranger.Value.ID == first.Value.ID {
		t.Errorf("another token: %s", stranger.Body)
	}
	b.checkLedger()
}

// An invalid request does not use up its key, unless an earlier attempt may have been executed.
func TestInvalidRequestDoesNotUseUpItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(1)
	params := &adminclient.CreateKeyParams{IdempotencyKey: new("corrected")}
	issue := func(name string) *answer[adminclient.IssuedKey] {
		r, err := answered(b.api.CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: name}))
		check(t, err)
		return r
	}
	problem(t, issue("").Problem, http.StatusBadRequest, "invalid_input")
	if r := issue("as it should be"); r.StatusCode != http.StatusCreated {
		t.Errorf("the corrected request: %s", r.Body)
	}
	problem(t, issue("").Problem, http.StatusConflict, "idempotency_conflict")

	// The process of the first attempt crashed: its effect is unknown.
	params.IdempotencyKey = new("unknown")
	b.exec(`insert into idempotency_keys (actor, key, method, path, body_hash, operation_id)
		select actor, 'unknown', method, path, sha256(convert_to($1, 'UTF8')), gen_random_uuid() from idempotency_keys where key = 'corrected'`, `{"name":""}`)
	problem(t, issue("").Problem, http.StatusBadRequest, "invalid_input")
	problem(t, issue("another").Problem, http.StatusConflict, "idempotency_conflict")
}

// The response was lost in a crash: the repeated request creates nothing twice and gets an equal
// response.
func TestRepeatedRequestAfterACrashCreatesNothingTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	account := func() *adminclient.Account {
		r, err := answered(b.api.CreateAccount(t.Context(), &adminclient.CreateAccountParams{IdempotencyKey: new("a")},
			adminclient.AccountCreate{Name: "Example", ExternalID: new("customer-1")}))
		check(t, err)
		if r.StatusCode != http.StatusCreated {
			t.Fatalf("create account: %s", r.Body)
		}
		return r.Value
	}
	a := account()
	issue := func() *adminclient.IssuedKey {
		r, err := answered(b.api.CreateKey(t.Context(), a.ID, &adminclient.CreateKeyParams{IdempotencyKey: new("k")},
			adminclient.KeyCreate{Name: "k", ExternalID: new("key-1")}))
		check(t, err)
		if r.StatusCode != http.StatusCreated {
			t.Fatalf("create key: %s", r.Body)
		}
		return r.Value
	}
	credit := func() string {
		params := &adminclient.CreateCreditParams{IdempotencyKey: new("c")}
		r, err := answered(b.api.CreateCredit(t.Context(), a.ID, params, adminclient.CreditCreate{
			Amount: "1.00", Kind: adminclient.CreditKindTopUp, Reference: "r",
		}))
		check(t, err)
		if r.StatusCode == http.StatusCreated {
			return r.Value.ID
		}
		return r.Value.ID
	}
	k, c := issue(), credit()
	_, err := b.db.Pool().Exec(t.Context(), "update idempotency_keys set status = null, content_type = null, body = null, cipher_key_id = null")
	check(t, err)
	if got := account(); got.ID != a.ID {
		t.Errorf("account %s again as %s", a.ID, got.ID)
	}
	if got := issue(); got.ID != k.ID || got.Secret != k.Secret {
		t.Errorf("key %s again as %s, or with another secret", k.ID, got.ID)
	}
	if got := credit(); got != c {
		t.Errorf("credit %s again as %s", c, got)
	}
	balance, err := answered(b.api.GetBalance(t.Context(), a.ID))
	check(t, err)
	if balance.Value.Balance != "1.00" {
		t.Errorf("balance %s; want 1.00", balance.Value.Balance)
	}
	b.checkLedger()
}

func TestConcurrentRequestsWithOneKeyRunOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(1)
	const n = 8
	ids := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r, err := answered(b.api.CreateKey(context.WithoutCancel(t.Context()), a.ID,
				&adminclient.CreateKeyParams{IdempotencyKey: new("once")}, adminclient.KeyCreate{Name: "k"}))
			if err == nil && r.StatusCode == http.StatusCreated {
				ids[i] = r.Value.ID + r.Value.Secret
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Errorf("got answers %q; want one key", ids)
			break
		}
	}
	listed, err := answered(b.api.ListKeys(t.Context(), a.ID, nil))
	check(t, err)
	if len(listed.Value.Data) != 1 {
		t.Errorf("got %d keys; want 1", len(listed.Value.Data))
	}
}

// The response of a revocation that was not confirmed is not stored: the repeated request waits
// again.
func TestRepeatedRevocationWaitsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.key(b.account(1).ID, "")
	params := &adminclient.RevokeKeyParams{IdempotencyKey: new("r")}
	b.announcer.answer = propagation.Confirmation{Bound: time.Minute}
	first, err := answered(b.api.RevokeKey(t.Context(), k.ID, params))
	check(t, err)
	b.announcer.answer = propagation.Confirmation{Effective: true}
	second, err := answered(b.api.RevokeKey(t.Context(), k.ID, params))
	check(t, err)
	if first.StatusCode != http.StatusAccepted || second.StatusCode != http.StatusOK {
		t.Errorf("got %d, then %d; want 202, then 200", first.StatusCode, second.StatusCode)
	}
}

func TestIdempotentResponseIsStoredEncrypted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(1)
	r, err := answered(b.api.CreateKey(t.Context(), a.ID, &adminclient.CreateKeyParams{IdempotencyKey: new("k")}, adminclient.KeyCreate{Name: "k"}))
	check(t, err)
	var found bool
	check(t, b.db.Pool().QueryRow(t.Context(), "select position($1::bytea in body) > 0 from idempotency_keys", []byte(r.Value.Secret)).Scan(&found))
	if found {
		t.Error("the stored response contains the key")
	}
}
