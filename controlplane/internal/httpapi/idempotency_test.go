package httpapi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/propagation"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	params := &adminclient.CreateKeyParams{IdempotencyKey: new("once")}
	first, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"}))
	servertest.Check(t, err)
	again, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"}))
	servertest.Check(t, err)
	if again.StatusCode != http.StatusCreated || string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated: %d %s; want %s again", again.StatusCode, again.Body, first.Body)
	}
	other, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "another"}))
	servertest.Check(t, err)
	servertest.Problem(t, other.Problem, http.StatusConflict, "idempotency_conflict")
	elsewhere, err := servertest.Answered(b.API.CreateKey(t.Context(), b.Account(1).ID, params, adminclient.KeyCreate{Name: "k"}))
	servertest.Check(t, err)
	servertest.Problem(t, elsewhere.Problem, http.StatusConflict, "idempotency_conflict")
	// Each token has its own namespace of keys.
	stranger, err := servertest.Answered(b.As(b.Token(adminclient.ScopeCabinet)).CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: "k"}))
	servertest.Check(t, err)
	if stranger.StatusCode != http.StatusCreated || stranger.Value.ID == first.Value.ID {
		t.Errorf("another token: %s", stranger.Body)
	}
	b.CheckLedger()
}

// An invalid request does not use up its key, unless an earlier attempt may have been executed.
func TestInvalidRequestDoesNotUseUpItsKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	params := &adminclient.CreateKeyParams{IdempotencyKey: new("corrected")}
	issue := func(name string) *servertest.Answer[adminclient.IssuedKey] {
		r, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, params, adminclient.KeyCreate{Name: name}))
		servertest.Check(t, err)
		return r
	}
	servertest.Problem(t, issue("").Problem, http.StatusBadRequest, "invalid_input")
	if r := issue("as it should be"); r.StatusCode != http.StatusCreated {
		t.Errorf("the corrected request: %s", r.Body)
	}
	servertest.Problem(t, issue("").Problem, http.StatusConflict, "idempotency_conflict")

	// The process of the first attempt crashed: its effect is unknown.
	params.IdempotencyKey = new("unknown")
	b.Exec(`insert into idempotency_keys (actor, key, method, path, body_hash, operation_id)
		select actor, 'unknown', method, path, sha256(convert_to($1, 'UTF8')), gen_random_uuid() from idempotency_keys where key = 'corrected'`, `{"name":""}`)
	servertest.Problem(t, issue("").Problem, http.StatusBadRequest, "invalid_input")
	servertest.Problem(t, issue("another").Problem, http.StatusConflict, "idempotency_conflict")
}

// The response was lost in a crash: the repeated request creates nothing twice and gets an equal
// response.
func TestRepeatedRequestAfterACrashCreatesNothingTwice(t *testing.T) {
	t.Parallel()
	b := start(t)
	account := func() *adminclient.Account {
		r, err := servertest.Answered(b.API.CreateAccount(t.Context(), &adminclient.CreateAccountParams{IdempotencyKey: new("a")},
			adminclient.AccountCreate{Name: "Example", ExternalID: new("customer-1")}))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusCreated {
			t.Fatalf("create account: %s", r.Body)
		}
		return r.Value
	}
	a := account()
	issue := func() *adminclient.IssuedKey {
		r, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, &adminclient.CreateKeyParams{IdempotencyKey: new("k")},
			adminclient.KeyCreate{Name: "k", ExternalID: new("key-1")}))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusCreated {
			t.Fatalf("create key: %s", r.Body)
		}
		return r.Value
	}
	credit := func() string {
		params := &adminclient.CreateCreditParams{IdempotencyKey: new("c")}
		r, err := servertest.Answered(b.API.CreateCredit(t.Context(), a.ID, params, adminclient.CreditCreate{
			Amount: "1.00", Kind: adminclient.CreditKindPayment, Reference: "r",
		}))
		servertest.Check(t, err)
		if r.StatusCode == http.StatusCreated {
			return r.Value.ID
		}
		return r.Value.ID
	}
	k, c := issue(), credit()
	_, err := b.DB.Pool().Exec(t.Context(), "update idempotency_keys set status = null, content_type = null, body = null, cipher_key_id = null")
	servertest.Check(t, err)
	if got := account(); got.ID != a.ID {
		t.Errorf("account %s again as %s", a.ID, got.ID)
	}
	if got := issue(); got.ID != k.ID || got.Secret != k.Secret {
		t.Errorf("key %s again as %s, or with another secret", k.ID, got.ID)
	}
	if got := credit(); got != c {
		t.Errorf("credit %s again as %s", c, got)
	}
	balance, err := servertest.Answered(b.API.GetBalance(t.Context(), a.ID))
	servertest.Check(t, err)
	if balance.Value.Balance != "1.00" {
		t.Errorf("balance %s; want 1.00", balance.Value.Balance)
	}
	b.CheckLedger()
}

func TestConcurrentRequestsWithOneKeyRunOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	const n = 8
	ids := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r, err := servertest.Answered(b.API.CreateKey(context.WithoutCancel(t.Context()), a.ID,
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
	listed, err := servertest.Answered(b.API.ListKeys(t.Context(), a.ID, nil))
	servertest.Check(t, err)
	if len(listed.Value.Data) != 1 {
		t.Errorf("got %d keys; want 1", len(listed.Value.Data))
	}
}

// The response of a revocation that was not confirmed is not stored: the repeated request waits
// again.
func TestRepeatedRevocationWaitsAgain(t *testing.T) {
	t.Parallel()
	b := start(t)
	k := b.Key(b.Account(1).ID, "")
	params := &adminclient.RevokeKeyParams{IdempotencyKey: new("r")}
	b.Announcer.Answer = propagation.Confirmation{Bound: time.Minute}
	first, err := servertest.Answered(b.API.RevokeKey(t.Context(), k.ID, params))
	servertest.Check(t, err)
	b.Announcer.Answer = propagation.Confirmation{Effective: true}
	second, err := servertest.Answered(b.API.RevokeKey(t.Context(), k.ID, params))
	servertest.Check(t, err)
	if first.StatusCode != http.StatusAccepted || second.StatusCode != http.StatusOK {
		t.Errorf("got %d, then %d; want 202, then 200", first.StatusCode, second.StatusCode)
	}
}

func TestIdempotentResponseIsStoredEncrypted(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	r, err := servertest.Answered(b.API.CreateKey(t.Context(), a.ID, &adminclient.CreateKeyParams{IdempotencyKey: new("k")}, adminclient.KeyCreate{Name: "k"}))
	servertest.Check(t, err)
	var found bool
	servertest.Check(t, b.DB.Pool().QueryRow(t.Context(), "select position($1::bytea in body) > 0 from idempotency_keys", []byte(r.Value.Secret)).Scan(&found))
	if found {
		t.Error("the stored response contains the key")
	}
}
