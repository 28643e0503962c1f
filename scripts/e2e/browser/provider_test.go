package browser

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"time"
)

// idProvider is a provider of OpenID Connect: whoever comes is signed in at once, as the person that a test has set.
type idProvider struct {
	url string
	key *ecdsa.PrivateKey

	mu sync.Mutex
	// claims are added to those of each ID token, and alter changes the parameters of each redirect to the console.
	claims map[string]any
	alter  func(url.Values)
	// grants are the unused codes, with what came with their requests.
	grants map[string]url.Values
}

var provider = &idProvider{grants: map[string]url.Values{}}

func (p *idProvider) start() (*httptest.Server, error) {
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, map[string]any{
			"issuer": p.url, "jwks_uri": p.url + "/keys", "authorization_endpoint": p.url + "/authorize", "token_endpoint": p.url + "/token",
			"response_types_supported": []string{"code"}, "id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		point, _ := p.key.PublicKey.Bytes() // 4, x, y
		respond(w, map[string]any{"keys": []any{map[string]any{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k1", "x": encode(point[1:33]), "y": encode(point[33:]),
		}}})
	})
	mux.HandleFunc("/authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	server := httptest.NewServer(mux)
	p.url = server.URL
	return server, nil
}

// become sets who signs in next, and how the redirect is altered.
func (p *idProvider) become(claims map[string]any, alter func(url.Values)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims, p.alter = claims, alter
}

func (p *idProvider) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := rand.Text()
	p.grants[code] = r.URL.Query()
	back, err := url.Parse(r.FormValue("redirect_uri"))
	if err != nil {
		http.Error(w, "redirect_uri", http.StatusBadRequest)
		return
	}
	query := url.Values{"code": {code}, "state": {r.FormValue("state")}}
	if p.alter != nil {
		p.alter(query)
	}
	back.RawQuery = query.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (p *idProvider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	grant, ok := p.grants[r.FormValue("code")]
	digest := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || grant.Get("code_challenge_method") != "S256" || grant.Get("code_challenge") != encode(digest[:]) {
		w.WriteHeader(http.StatusBadRequest)
		respond(w, map[string]string{"error": "invalid_grant"})
		return
	}
	delete(p.grants, r.FormValue("code"))
	now := time.Now().Unix()
	claims := map[string]any{
		"iss": p.url, "aud": grant.Get("client_id"), "sub": "alice", "iat": now, "exp": now + 300, "nonce": grant.Get("nonce"),
	}
	maps.Copy(claims, p.claims)
	respond(w, map[string]any{"access_token": "opaque", "token_type": "Bearer", "id_token": p.sign(claims)})
}

func (p *idProvider) sign(claims map[string]any) string {
	part := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // never: the claims are texts and numbers
		}
		return encode(text)
	}
	signed := part(map[string]string{"alg": "ES256", "kid": "k1", "typ": "JWT"}) + "." + part(claims)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, digest[:])
	if err != nil {
		panic(err)
	}
	return signed + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func respond(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the control plane reports what it cannot read
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
