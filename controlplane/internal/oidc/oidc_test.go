package oidc_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/oidc"
)

// signer is a signing key of a provider.
type signer struct {
	id        string
	algorithm jose.SignatureAlgorithm
	key       crypto.Signer
}

func rs256(t *testing.T, id string) signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return signer{id, jose.RS256, key}
}

func es256(t *testing.T, id string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{id, jose.ES256, key}
}

func jwks(t *testing.T, signers ...signer) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, s := range signers {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Algorithm: string(s.algorithm), Use: "sig"})
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

type claims map[string]any

// sign returns a token with valid claims, except for those that are given.
func sign(t *testing.T, s signer, issuer string, other claims) string {
	t.Helper()
	all := claims{
		"iss": issuer, "aud": "gateway", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "groups": []string{"admins"},
	}
	maps.Copy(all, other)
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: s.algorithm, Key: jose.JSONWebKey{Key: s.key, KeyID: s.id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := by.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const issuer = "https://id.example"

func config(keys string) oidc.Config {
	return oidc.Config{
		Issuer: issuer, Audience: "gateway", JWKSFile: keys, Claim: "groups", ClockSkew: time.Minute,
		ScopeMapping: map[string]admin.Scope{"admins": admin.Operator, "support": admin.Read},
	}
}

func file(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVerify(t *testing.T) {
	t.Parallel()
	rsaKey, ecKey, stranger := rs256(t, "r"), es256(t, "e"), rs256(t, "r")
	now := time.Now()
	tests := []struct {
		name   string
		by     signer
		claims claims
		err    error
		scopes []admin.Scope
	}{
		{name: "RS256", by: rsaKey, scopes: []admin.Scope{admin.Operator}},
		{name: "ES256", by: ecKey, scopes: []admin.Scope{admin.Operator}},
		{name: "several audiences", by: ecKey, claims: claims{"aud": []string{"other", "gateway"}}, scopes: []admin.Scope{admin.Operator}},
		{name: "a text of scopes", by: ecKey, claims: claims{"groups": "support staff"}, scopes: []admin.Scope{admin.Read}},
		{name: "no scope of ours", by: ecKey, claims: claims{"groups": []string{"staff", "operator"}}},
		{name: "no claim", by: ecKey, claims: claims{"groups": nil}},
		{name: "expired within the skew", by: ecKey, claims: claims{"exp": now.Add(-30 * time.Second).Unix()}, scopes: []admin.Scope{admin.Operator}},
		{name: "expired", by: ecKey, claims: claims{"exp": now.Add(-2 * time.Minute).Unix()}, err: admin.ErrExpired},
		{name: "not yet", by: ecKey, claims: claims{"nbf": now.Add(time.Hour).Unix()}, err: admin.ErrUnauthenticated},
		{name: "another issuer", by: ecKey, claims: claims{"iss": "https://other.example"}, err: admin.ErrUnauthenticated},
		{name: "an issuer that reads like a failure", by: ecKey, claims: claims{"iss": "fetching keys"}, err: admin.ErrUnauthenticated},
		{name: "another audience", by: ecKey, claims: claims{"aud": "other"}, err: admin.ErrUnauthenticated},
		{name: "no subject", by: ecKey, claims: claims{"sub": ""}, err: admin.ErrUnauthenticated},
		{name: "subject with a NUL", by: ecKey, claims: claims{"sub": "ali\x00ce"}, err: admin.ErrUnauthenticated},
		{name: "another key of the same id", by: stranger, err: admin.ErrUnauthenticated},
		{name: "a secret that everybody knows", by: signer{"h", jose.HS256, nil}, err: admin.ErrUnauthenticated},
	}
	v, err := oidc.New(config(file(t, jwks(t, rsaKey, ecKey))))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		text := "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0."
		if tt.by.key != nil {
			text = sign(t, tt.by, issuer, tt.claims)
		}
		got, err := v.Verify(t.Context(), text)
		if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("%s: got %v; want %v", tt.name, err, tt.err)
		}
		if err == nil && (got.Name != "oidc:alice" || !slices.Equal(got.Scopes, tt.scopes)) {
			t.Errorf("%s: got %+v; want alice with %v", tt.name, got, tt.scopes)
		}
	}
}

func TestChangedKeyFileIsReadAgain(t *testing.T) {
	t.Parallel()
	first, second := es256(t, "1"), es256(t, "2")
	path := file(t, jwks(t, first))
	v, err := oidc.New(config(path))
	if err != nil {
		t.Fatal(err)
	}
	rewrite := func(text []byte, at time.Time) {
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(jwks(t, second), time.Now().Add(time.Second))
	if _, err := v.Verify(t.Context(), sign(t, second, issuer, nil)); err != nil {
		t.Errorf("a token of the new key: %v", err)
	}
	if _, err := v.Verify(t.Context(), sign(t, first, issuer, nil)); !errors.Is(err, admin.ErrUnauthenticated) {
		t.Errorf("a token of the old key: %v", err)
	}
	rewrite([]byte("{"), time.Now().Add(2*time.Second))
	if _, err := v.Verify(t.Context(), sign(t, second, issuer, nil)); err != nil {
		t.Errorf("while the file is broken: %v", err)
	}
	if _, err := oidc.New(config(file(t, []byte(`{"keys":[]}`)))); err == nil {
		t.Error("a file without keys is taken")
	}
}

// While the provider is down, tokens are not reported as invalid. Its keys can change at any time.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	first, second := rs256(t, "1"), rs256(t, "2")
	var keys atomic.Value
	keys.Store(jwks(t, first))
	var fetched atomic.Int64
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{
				"issuer": server.URL, "jwks_uri": server.URL + "/keys", "authorization_endpoint": server.URL, "token_endpoint": server.URL,
				"id_token_signing_alg_values_supported": []string{"RS256"},
			})
		case "/keys":
			fetched.Add(1)
			_, _ = w.Write(keys.Load().([]byte))
		}
	}))
	defer server.Close()
	cfg := config("")
	cfg.Issuer = server.URL
	v, err := oidc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := v.Verify(t.Context(), sign(t, first, server.URL, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if n := fetched.Load(); n != 1 {
		t.Errorf("keys were fetched %d times; want once", n)
	}
	keys.Store(jwks(t, second))
	if _, err := v.Verify(t.Context(), sign(t, second, server.URL, nil)); err != nil {
		t.Errorf("after a change of keys: %v", err)
	}
	// Forged tokens with unknown keys do not make the provider's keys be fetched for each of them, and valid tokens are
	// accepted meanwhile.
	before, unknown := fetched.Load(), rs256(t, "forged")
	for range 50 {
		if _, err := v.Verify(t.Context(), sign(t, unknown, server.URL, nil)); err == nil {
			t.Fatal("a forged token is accepted")
		}
	}
	if n := fetched.Load() - before; n > 5 {
		t.Errorf("the keys were fetched %d times for 50 forged tokens; want at most 5", n)
	}
	if _, err := v.Verify(t.Context(), sign(t, second, server.URL, nil)); err != nil {
		t.Errorf("a valid token after forged ones: %v", err)
	}
	server.Close()
	if _, err := v.Verify(t.Context(), sign(t, rs256(t, "3"), server.URL, nil)); !errors.Is(err, admin.ErrUnavailable) {
		t.Errorf("while the provider is down: got %v; want ErrUnavailable", err)
	}
	cfg.Issuer = "http://127.0.0.1:1"
	v, err = oidc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), sign(t, second, cfg.Issuer, nil)); !errors.Is(err, admin.ErrUnavailable) {
		t.Errorf("a provider that was never there: got %v; want ErrUnavailable", err)
	}
}

// Whoever answers in the place of the provider could sign tokens of any operator.
func TestProviderWithoutTLSIsNotAsked(t *testing.T) {
	t.Parallel()
	key := rs256(t, "1")
	for _, tt := range []struct {
		issuer, keys string
		asked        int
	}{
		{"http://id.example", "http://id.example/keys", 0},
		{"http://localhost.id.example", "http://localhost.id.example/keys", 0},
		{"https://id.example", "http://id.example/keys", 1},
		{"https://id.example", "https://id.example/keys", 2},
		{"http://localhost:1", "http://127.0.0.1:1/keys", 2},
		{"http://[::1]:1", "http://[::1]:1/keys", 2},
	} {
		asked := 0
		provider := roundTripper(func(r *http.Request) *http.Response {
			asked++
			w := httptest.NewRecorder()
			if r.URL.Path == "/keys" {
				_, _ = w.Write(jwks(t, key))
			} else {
				_ = json.NewEncoder(w).Encode(map[string]any{"issuer": tt.issuer, "jwks_uri": tt.keys, "id_token_signing_alg_values_supported": []string{"RS256"}})
			}
			return w.Result()
		})
		cfg := config("")
		cfg.Issuer, cfg.Client = tt.issuer, &http.Client{Transport: provider}
		v, err := oidc.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = v.Verify(t.Context(), sign(t, key, tt.issuer, nil))
		if asked != tt.asked || (err == nil) != (tt.asked == 2) || err != nil && !errors.Is(err, admin.ErrUnavailable) {
			t.Errorf("%s with keys at %s: asked %d times, %v; want %d", tt.issuer, tt.keys, asked, err, tt.asked)
		}
	}
}

// roundTripper is the transport of a provider without a server.
type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func TestParseScopes(t *testing.T) {
	t.Parallel()
	got, err := oidc.ParseScopes("admins=operator, a b=read")
	if err != nil || len(got) != 2 || got["admins"] != admin.Operator || got["a b"] != admin.Read {
		t.Errorf("got %v, %v", got, err)
	}
	for _, wrong := range []string{"", "admins", "=read", "admins=boss"} {
		if got, err := oidc.ParseScopes(wrong); err == nil {
			t.Errorf("%q gave %v", wrong, got)
		}
	}
}
