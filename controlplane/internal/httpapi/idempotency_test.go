package httpapi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/change"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(1)
	params := &adminclient.CreateKeyParams{IdempotencyKey: new("once")}
	first, err := b.api.CreateKeyWithResponse(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"})
	check(t, err)
	again, err := b.api.CreateKeyWithResponse(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"})
	check(t, err)
	if again.StatusCode() != http.StatusCreated || string(again.Body) != string(first.Body) || again.HTTPResponse.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated: %d %s; want %s again", again.StatusCode(), again.Body, first.Body)
	}
	other, err := b.api.CreateKeyWithResponse(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "another"})
	check(t, err)
	problem(t, other.ApplicationProblemJSONDefault, http.StatusConflict, "idempotency_conflict")
	elsewhere, err := b.api.CreateKeyWithResponse(t.Context(), b.account(1).ID, params, adminclient.KeyCreate{Name: "k"})
	check(t, err)
	problem(t, elsewhere.ApplicationProblemJSONDefault, http.StatusConflict, "idempotency_conflict")
	// Keys belong to a token: another token's are its own.
	stranger, err := b.as(b.token(adminclient.Cabinet)).CreateKeyWithResponse(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"})
	check(t, err)
	if stranger.JSON201 == nil || stranger.JSON201.ID == first.JSON201.ID {
		t.Errorf("another token: %s", stranger.Body)
	}
	b.sound()
}

// A request that is not valid does not use up its key; one that an earlier
// attempt may have done does.
func TestIdempotencyOfRefusedRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(1)
	params := &adminclient.CreateKeyParams{IdempotencyKey: new("corrected")}
	issue := func(name string) *adminclient.CreateKeyResponse {
		r, err := b.api.CreateKeyWithResponse(t.Context(), a.ID, params, adminclient.KeyCreate{Name: name})
		check(t, err)
		return r
	}
	problem(t, issue("").ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	if r := issue("as it should be"); r.JSON201 == nil {
		t.Errorf("the corrected request: %s", r.Body)
	}
	problem(t, issue("").ApplicationProblemJSONDefault, http.StatusConflict, "idempotency_conflict")

	// The first attempt died with its process: what it did, nobody knows.
	params.IdempotencyKey = new("unknown")
	b.exec(`insert into idempotency_keys (actor, key, method, path, body_hash, operation_id)
		select actor, 'unknown', method, path, sha256(convert_to($1, 'UTF8')), gen_random_uuid() from idempotency_keys where key = 'corrected'`, `{"name":""}`)
	problem(t, issue("").ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	problem(t, issue("another").ApplicationProblemJSONDefault, http.StatusConflict, "idempotency_conflict")
}

// The answer was lost with the process that gave it: doing the request again
// makes nothing twice, and answers alike.
func TestIdempotencyAfterCrash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	account := func() *adminclient.Account {
		r, err := b.api.CreateAccountWithResponse(t.Context(), &adminclient.CreateAccountParams{IdempotencyKey: new("a")},
			adminclient.AccountCreate{Name: "Example", ExternalID: new("customer-1")})
		check(t, err)
		if r.JSON201 == nil {
			t.Fatalf("create account: %s", r.Body)
		}
		return r.JSON201
	}
	a := account()
	issue := func() *adminclient.IssuedKey {
		r, err := b.api.CreateKeyWithResponse(t.Context(), a.ID, &adminclient.CreateKeyParams{IdempotencyKey: new("k")},
			adminclient.KeyCreate{Name: "k", ExternalID: new("key-1")})
		check(t, err)
		if r.JSON201 == nil {
			t.Fatalf("create key: %s", r.Body)
		}
		return r.JSON201
	}
	credit := func() string {
		params := &adminclient.CreateCreditParams{IdempotencyKey: new("c")}
		r, err := b.api.CreateCreditWithResponse(t.Context(), a.ID, params, adminclient.CreditCreate{
			Amount: "1.00", Kind: adminclient.CreditKindTopUp, Reference: "r",
		})
		check(t, err)
		if r.JSON201 != nil {
			return r.JSON201.ID
		}
		return r.JSON200.ID
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
	balance, err := b.api.GetBalanceWithResponse(t.Context(), a.ID)
	check(t, err)
	if balance.JSON200.Balance != "1.00" {
		t.Errorf("balance %s; want 1.00", balance.JSON200.Balance)
	}
	b.sound()
}

func TestIdempotencyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(1)
	const n = 8
	ids := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r, err := b.api.CreateKeyWithResponse(context.WithoutCancel(t.Context()), a.ID,
				&adminclient.CreateKeyParams{IdempotencyKey: new("once")}, adminclient.KeyCreate{Name: "k"})
			if err == nil && r.JSON201 != nil {
				ids[i] = r.JSON201.ID + r.JSON201.Secret
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
	listed, err := b.api.ListKeysWithResponse(t.Context(), a.ID, nil)
	check(t, err)
	if len(listed.JSON200.Data) != 1 {
		t.Errorf("got %d keys; want 1", len(listed.JSON200.Data))
	}
}

// A revocation that was not confirmed is not the last word: the same request
// waits further.
func TestIdempotencyOfRevoke(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.key(b.account(1).ID, "")
	params := &adminclient.RevokeKeyParams{IdempotencyKey: new("r")}
	b.announcer.answer = change.Confirmation{Bound: time.Minute}
	first, err := b.api.RevokeKeyWithResponse(t.Context(), k.ID, params)
	check(t, err)
	b.announcer.answer = change.Confirmation{Effective: true}
	second, err := b.api.RevokeKeyWithResponse(t.Context(), k.ID, params)
	check(t, err)
	if first.JSON202 == nil || second.JSON200 == nil {
		t.Errorf("got %d, then %d; want 202, then 200", first.StatusCode(), second.StatusCode())
	}
}

func TestIdempotencyKeyIsKeptSealed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.account(1)
	r, err := b.api.CreateKeyWithResponse(t.Context(), a.ID, &adminclient.CreateKeyParams{IdempotencyKey: new("k")}, adminclient.KeyCreate{Name: "k"})
	check(t, err)
	var found bool
	check(t, b.db.Pool().QueryRow(t.Context(), "select position($1::bytea in body) > 0 from idempotency_keys", []byte(r.JSON201.Secret)).Scan(&found))
	if found {
		t.Error("the kept answer shows the key")
	}
}
