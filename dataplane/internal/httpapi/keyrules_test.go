package httpapi_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"modelgateway/shared/event"
	"modelgateway/shared/pulse"
	"modelgateway/shared/wire"
)

// rule gives a key rules and tells the proxy, as the control plane does.
func (g *gateway) rule(key string, rules wire.KeyRules) {
	hash := g.hasher.Hash(key)
	change := wire.KeyChange{V: wire.Version, Kind: wire.KeyUpdated, KeyHash: hash}
	g.plane.set(func(p *controlPlane) {
		record := p.records[hash]
		record.Rules = rules
		p.records[hash] = record
		p.readRevision++
		change.Revision, change.PreviousRevision = p.readRevision, p.readRevision-1
	})
	g.keys.Apply(change)
	g.admit.OnChange(change)
}

// Every endpoint refuses a key that may not be used, and says why; the refusals are counted under the known key.
func TestKeyThatMayNotBeUsedIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON), videoProvider("completed"))
	g.plane.set(func(p *controlPlane) { p.balance.Status = wire.Done })
	expired := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for _, tt := range []struct {
		rules        wire.KeyRules
		want, reason string
	}{
		{wire.KeyRules{Paused: true}, "The API key is paused.", pulse.ReasonKeyPaused},
		{wire.KeyRules{ExpiresMS: expired.UnixMilli()}, "The API key expired at " + expired.UTC().Format(time.RFC3339) + ".", pulse.ReasonKeyExpired},
		{
			wire.KeyRules{Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
			"The API key may not be used from the address 127.0.0.1.", pulse.ReasonKeyNetwork,
		},
	} {
		g.rule(g.key, tt.rules)
		for _, path := range []string{"/v1/chat/completions", "/v1/models", "/v1/balance", "/v1/videos/video_1"} {
			method, body := http.MethodGet, ""
			if path == "/v1/chat/completions" {
				method, body = http.MethodPost, chatBody
			}
			got := g.send(method, path, body).apiError(t)
			if got.Status != 401 || got.Code != "invalid_api_key" || got.Message != tt.want {
				t.Errorf("%s: got %+v; want 401 %q", path, got, tt.want)
			}
		}
		if n := len(g.sims[0].received()); n != 0 {
			t.Errorf("%s: the provider was called", tt.reason)
		}
		refusals := g.report().Refusals
		if !slices.ContainsFunc(refusals, func(r pulse.Refusal) bool { return r.Reason == tt.reason && r.Account == theAccount && r.Key != "" }) {
			t.Errorf("%s: got refusals %+v", tt.reason, refusals)
		}
	}

	g.rule(g.key, wire.KeyRules{ExpiresMS: time.Now().Add(time.Hour).UnixMilli(), Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
		t.Errorf("allowed again: got %d %s", got.status, got.body)
	}
	g.spool.next(t)
}

// A model that the key may not use is not found, whether the account has it or not, and is not listed.
func TestKeyUsesOnlyItsModels(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
	all, _ := g.listModels("Authorization", "Bearer "+g.key)
	g.rule(g.key, wire.KeyRules{Models: []string{"ima*", "absent"}})
	got := g.post("/v1/chat/completions", chatBody).apiError(t)
	if got.Status != 404 || got.Code != "model_not_found" || got.Param != "model" || !strings.Contains(got.Message, "not among the models of this API key") {
		t.Errorf("got %+v; want 404", got)
	}
	if ids, _ := g.listModels("Authorization", "Bearer "+g.key); !slices.Equal(ids, []string{"image"}) {
		t.Errorf("listed: %q of %q; want only image", ids, all)
	}

	g.rule(g.key, wire.KeyRules{Models: []string{"text"}})
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
		t.Errorf("its model: got %d %s", got.status, got.body)
	}
	g.spool.next(t)
	if ids, _ := g.listModels("Authorization", "Bearer "+g.key); !slices.Equal(ids, []string{"text"}) {
		t.Errorf("listed: %q; want only text", ids)
	}
	if ids, _ := g.listModels("Authorization", "Bearer "+g.issue("key_other", theAccount)); !slices.Equal(ids, all) {
		t.Errorf("another key: %q; want %q", ids, all)
	}
}

// A key that is paused while its request runs goes on; one that is paused before the provider is called is not sent.
func TestRunningRequestOfAPausedKeyGoesOn(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	g.sims[0].setAnswer(func(w http.ResponseWriter, r *http.Request) {
		g.rule(g.key, wire.KeyRules{Paused: true})
		jsonAnswer(http.StatusOK, chatJSON)(w, r)
	})
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
		t.Errorf("running: got %d %s", got.status, got.body)
	}
	if e := g.spool.next(t); e.Status != event.Completed {
		t.Errorf("got event %+v", e)
	}

	g.rule(g.key, wire.KeyRules{})
	g.spool.onStart = func() { g.rule(g.key, wire.KeyRules{Paused: true}) }
	got := g.post("/v1/chat/completions", chatBody).apiError(t)
	if got.Status != 401 || got.Code != "invalid_api_key" {
		t.Errorf("before the call: got %+v; want 401", got)
	}
	if n := len(g.sims[0].received()); n != 1 {
		t.Errorf("the provider got %d calls; want one", n)
	}
	g.spool.next(t)
}
