package e2e

import (
	"net/http"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/scripts/e2e/rig"
)

// A change with wait=applied is effective on every proxy when the call returns: a grant, its
// removal, a key, a price and a suspended account.
func TestWaitAppliedTakesEffectOnEveryProxy(t *testing.T) {
	t.Parallel()
	r := rig.Get(t)
	a := r.Account(t, rig.AccountSpec{})
	wait, longest := adminclient.WaitForApplied, "60s"
	applied := func(what string, h http.Header) {
		t.Helper()
		if h.Get("Applied") != "true" || h.Get("Applied-By") == "" {
			t.Fatalf("%s: applied %q by %q", what, h.Get("Applied"), h.Get("Applied-By"))
		}
	}
	everywhere := func(what, model string, want int) {
		t.Helper()
		for proxy := range r.Proxies {
			answer, err := r.Ask(t.Context(), rig.Request{
				Proxy: proxy, Path: "/v1/chat/completions", Key: a.Key, Body: map[string]any{"model": model, "messages": []any{map[string]string{"role": "user", "content": "hi"}}},
			})
			if err != nil || answer.Status != want {
				t.Errorf("%s, proxy %d: %v, %v; want %d", what, proxy, answer, err, want)
			}
		}
	}
	own := r.Model(t, rig.Model{Formats: []string{"chat"}})
	patch := func(what string, p adminclient.KeyPatch, want int) {
		t.Helper()
		changed, err := r.Admin.UpdateKey(t.Context(), a.KeyID, &adminclient.UpdateKeyParams{Wait: &wait, Timeout: &longest}, p)
		if err != nil {
			t.Fatal(err)
		}
		applied(what, changed.Header)
		everywhere(what, own, want)
	}
	patch("a paused key", adminclient.KeyPatch{Paused: new(true)}, http.StatusUnauthorized)
	patch("a key of another network", adminclient.KeyPatch{Paused: new(false), Networks: optional.Of([]string{"192.0.2.0/24"})}, http.StatusUnauthorized)
	patch("a key of this network", adminclient.KeyPatch{Networks: optional.Of([]string{"127.0.0.0/8", "::1"})}, http.StatusOK)
	patch("a key of other models", adminclient.KeyPatch{Models: optional.Of([]string{"other-*"})}, http.StatusNotFound)
	patch("a key of its model", adminclient.KeyPatch{Models: optional.Of([]string{own})}, http.StatusOK)
	patch("a key of all models", adminclient.KeyPatch{Models: optional.Of([]string{})}, http.StatusOK)

	model := r.Model(t, rig.Model{Formats: []string{"chat"}, Public: new(false)})
	everywhere("a closed model", model, http.StatusNotFound)
	granted, err := r.Admin.GrantModel(t.Context(), a.ID, model, &adminclient.GrantModelParams{Wait: &wait, Timeout: &longest})
	if err != nil {
		t.Fatal(err)
	}
	applied("grant", granted.Header)
	everywhere("a granted model", model, http.StatusOK)
	withdrawn, err := r.Admin.WithdrawModel(t.Context(), a.ID, model, &adminclient.WithdrawModelParams{Wait: &wait, Timeout: &longest})
	if err != nil {
		t.Fatal(err)
	}
	applied("withdraw", withdrawn.Header)
	everywhere("a withdrawn grant", model, http.StatusNotFound)
	suspended, err := r.Admin.UpdateAccount(t.Context(), a.ID, &adminclient.UpdateAccountParams{Wait: &wait, Timeout: &longest},
		adminclient.AccountPatch{Status: new(adminclient.AccountStatusSuspended)})
	if err != nil {
		t.Fatal(err)
	}
	applied("suspend", suspended.Header)
	everywhere("a suspended account", model, http.StatusUnauthorized)
}
