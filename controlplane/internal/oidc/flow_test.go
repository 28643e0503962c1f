package oidc_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/oidc"
)

// codeProvider is a provider that exchanges one code for an ID token.
type codeProvider struct {
	t         *testing.T
	key       signer
	challenge string
	claims    claims
	used      bool
	url       string
}

func (p *codeProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": p.url, "jwks_uri": p.url + "/keys", "authorization_endpoint": p.url + "/authorize", "token_endpoint": p.url + "/token",
		})
	case "/keys":
		_, _ = w.Write(jwks(p.t, p.key))
	case "/token":
		digest := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if p.used || r.FormValue("code") != "the code" || base64.RawURLEncoding.EncodeToString(digest[:]) != p.challenge {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			return
		}
		p.used = true
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": sign(p.t, p.key, p.url, p.claims)})
	}
}

func TestFlowReturnsThePersonOfACode(t *testing.T) {
	t.Parallel()
	const verifier = "a verifier of the browser that is long enough for S256"
	for name, test := range map[string]struct {
		claims         claims
		code, verifier string
		want           error
	}{
		"a person":             {claims{}, "the code", verifier, nil},
		"another nonce":        {claims{"nonce": "x"}, "the code", verifier, admin.ErrUnauthenticated},
		"another code":         {claims{}, "x", verifier, admin.ErrUnauthenticated},
		"another verifier":     {claims{}, "the code", "x", admin.ErrUnauthenticated},
		"another audience":     {claims{"aud": "gateway"}, "the code", verifier, admin.ErrUnauthenticated},
		"an expired ID token":  {claims{"exp": 1}, "the code", verifier, admin.ErrExpired},
		"a person without any": {claims{"groups": []string{"others"}}, "the code", verifier, nil},
	} {
		all := claims{"aud": "console", "nonce": "the nonce"}
		maps.Copy(all, test.claims)
		p := &codeProvider{t: t, key: rs256(t, "k1"), claims: all}
		server := httptest.NewServer(p)
		t.Cleanup(server.Close)
		p.url = server.URL
		cfg := config("")
		cfg.Issuer = server.URL
		flow, err := oidc.NewFlow(oidc.FlowConfig{Config: cfg, ClientID: "console", RedirectURL: "https://console.example/callback", Scopes: []string{"groups"}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := flow.URL(t.Context(), "the state", "the nonce", verifier)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		for member, want := range map[string]string{
			"state": "the state", "nonce": "the nonce", "client_id": "console", "response_type": "code", "scope": "openid groups",
			"code_challenge_method": "S256", "redirect_uri": "https://console.example/callback",
		} {
			if got := query.Get(member); got != want {
				t.Errorf("%s: %s is %q; want %q", name, member, got, want)
			}
		}
		p.challenge = query.Get("code_challenge")
		got, err := flow.Exchange(t.Context(), test.code, "the nonce", test.verifier)
		if !errors.Is(err, test.want) || err == nil && (got.Name != "oidc:alice" || got.Method != admin.ByOIDC) {
			t.Errorf("%s: got %+v, %v; want %v", name, got, err, test.want)
		}
		if err == nil && (name == "a person") != (len(got.Scopes) == 1) {
			t.Errorf("%s: got the scopes %v", name, got.Scopes)
		}
		if _, err := flow.Exchange(t.Context(), test.code, "the nonce", test.verifier); err == nil {
			t.Errorf("%s: the code was accepted twice", name)
		}
	}
}

func TestManyPeopleCanSignInAtOnce(t *testing.T) {
	t.Parallel()
	const verifier = "a verifier of the browser that is long enough for S256"
	p := &codeProvider{t: t, key: rs256(t, "k1"), claims: claims{"aud": "console", "nonce": "the nonce"}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = server.URL
	cfg := config("")
	cfg.Issuer = server.URL
	flow, err := oidc.NewFlow(oidc.FlowConfig{Config: cfg, ClientID: "console", RedirectURL: "https://console.example/callback"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		text, err := flow.URL(t.Context(), "the state", "the nonce", verifier)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		p.challenge, p.used = u.Query().Get("code_challenge"), false
		if _, err := flow.Exchange(t.Context(), "the code", "the nonce", verifier); err != nil {
			t.Fatalf("sign-in %d: %v", n+1, err)
		}
	}
}

func TestFlowIsUnavailableWithoutItsProvider(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	cfg := config("")
	cfg.Issuer = server.URL
	flow, err := oidc.NewFlow(oidc.FlowConfig{Config: cfg, ClientID: "console"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := flow.URL(t.Context(), "s", "n", "v"); !errors.Is(err, admin.ErrUnavailable) {
			t.Errorf("got %v; want ErrUnavailable", err)
		}
	}
}
