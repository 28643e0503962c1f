// Package oidc verifies bearer tokens of an OpenID Connect provider and maps their claims to
// scopes. It implements admin.Verifier.
//
// The keys come from the provider's discovery document or from a file. They are cached, and read
// again when a token names an unknown key or when the file changes, so the provider can replace
// its keys at any time.
package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"modelgateway/controlplane/internal/admin"
)

// Config selects the accepted tokens.
type Config struct {
	// Issuer and Audience are required in a token.
	Issuer, Audience string
	// JWKSFile is a file with the provider's keys (JWKS); empty uses discovery.
	JWKSFile string
	// Claim is the path of the claim that scopes are read from, a list or a text with spaces. A dot selects a member
	// of an object.
	Claim string
	// ScopeMapping maps values of the claim to scopes.
	ScopeMapping map[string]admin.Scope
	// ClockSkew is the tolerated clock difference to the provider.
	ClockSkew time.Duration
	// Client calls the provider; nil means a client with a timeout.
	Client *http.Client
}

const (
	// providerTimeout bounds a call to the provider, discoveryPause is the delay between two discovery attempts.
	providerTimeout = 5 * time.Second
	discoveryPause  = 5 * time.Second
	// A forged token that names an unknown key makes the library fetch the keys again: at most fetchBurst times in a
	// row, then once every fetchInterval.
	fetchInterval = 2 * time.Second
	fetchBurst    = 5
)

// noKeys is the prefix of the library's error if the keys cannot be fetched; the library has no
// error value for it. Only the prefix is compared, since the error can end with text from the token.
const noKeys = "failed to verify signature: fetching keys"

var algorithms = []string{oidclib.RS256, oidclib.ES256}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	cfg Config

	mu       sync.Mutex
	verifier *oidclib.IDTokenVerifier
	// tried is the time of the last failed discovery.
	tried time.Time
}

var _ admin.Verifier = (*Verifier)(nil)

// New returns a Verifier. The provider need not be reachable yet; a key file must exist.
func New(cfg Config) (*Verifier, error) {
	client := http.Client{Timeout: providerTimeout}
	if cfg.Client != nil {
		client = *cfg.Client
	}
	client.Transport = &limitedTransport{next: client.Transport, fetches: rate.NewLimiter(rate.Every(fetchInterval), fetchBurst)}
	cfg.Client = &client
	v := &Verifier{cfg: cfg}
	if cfg.JWKSFile != "" {
		keys := &fileKeys{path: cfg.JWKSFile}
		if err := keys.load(); err != nil {
			return nil, err
		}
		v.verifier = oidclib.NewVerifier(cfg.Issuer, keys, v.checks())
	}
	return v, nil
}

// IsSecure reports whether nobody can answer in the place of the server at an address: it has TLS, or is this machine.
func IsSecure(address string) bool {
	u, err := url.Parse(address)
	return err == nil && isSecure(u)
}

func isSecure(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}

// limitedTransport fails fetches from the provider beyond a rate, and all requests without TLS: whoever answers them could
// sign tokens. The discovery document may name any address. The exchange of a code, a POST, is no fetch: there is one for
// each sign-in that was begun, and many people may sign in at once.
type limitedTransport struct {
	// next is nil for the default transport.
	next    http.RoundTripper
	fetches *rate.Limiter
}

var (
	errTooManyFetches = errors.New("oidc: the provider's keys were fetched too often")
	errNoTLS          = errors.New("oidc: the address does not begin with https://")
)

func (l *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isSecure(r.URL) {
		return nil, errNoTLS
	}
	if r.Method == http.MethodGet && !l.fetches.Allow() {
		return nil, errTooManyFetches
	}
	next := l.next
	if next == nil {
		next = http.DefaultTransport
	}
	return next.RoundTrip(r) //nolint:wrapcheck // passed through
}

func (v *Verifier) checks() *oidclib.Config {
	return &oidclib.Config{
		ClientID: v.cfg.Audience, SupportedSigningAlgs: algorithms,
		// This tolerates a token that has just expired. The library itself tolerates one that is not valid yet.
		Now: func() time.Time { return time.Now().Add(-v.cfg.ClockSkew) },
	}
}

func (v *Verifier) Verify(ctx context.Context, text string) (admin.Principal, error) {
	_, p, err := v.verify(ctx, text)
	return p, err
}

func (v *Verifier) verify(ctx context.Context, text string) (*oidclib.IDToken, admin.Principal, error) {
	verifier, err := v.discovered(ctx)
	if err != nil {
		return nil, admin.Principal{}, err
	}

	// The library fetches the keys once for all concurrent requests that need them.
	token, err := verifier.Verify(oidclib.ClientContext(ctx, v.cfg.Client), text)
	if _, expired := errors.AsType[*oidclib.TokenExpiredError](err); expired {
		return nil, admin.Principal{}, admin.ErrExpired
	}

	switch {
	case err == nil:
	case strings.HasPrefix(err.Error(), noKeys):
		return nil, admin.Principal{}, fmt.Errorf("%w: %w", admin.ErrUnavailable, err)
	default:
		return nil, admin.Principal{}, fmt.Errorf("%w: %w", admin.ErrUnauthenticated, err)
	}

	var claims map[string]any
	if err := token.Claims(&claims); err != nil || token.Subject == "" {
		return nil, admin.Principal{}, fmt.Errorf("%w: its claims are not an object with a subject", admin.ErrUnauthenticated)
	}
	if strings.ContainsFunc(token.Subject, unicode.IsControl) { // Postgres stores no NUL, and no person reads the others
		return nil, admin.Principal{}, fmt.Errorf("%w: its subject has control characters", admin.ErrUnauthenticated)
	}

	return token, admin.Principal{
		Name:      "oidc:" + token.Subject,
		Scopes:    v.scopes(claims),
		Method:    admin.ByOIDC,
		ExpiresAt: &token.Expiry,
	}, nil
}

// discovered returns the library's verifier. The first call discovers the provider.
func (v *Verifier) discovered(ctx context.Context) (*oidclib.IDTokenVerifier, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verifier != nil {
		return v.verifier, nil
	}
	if time.Since(v.tried) < discoveryPause {
		return nil, fmt.Errorf("%w: the provider did not answer a moment ago", admin.ErrUnavailable)
	}

	// The provider's key set keeps using the context of its discovery.
	lasting := oidclib.ClientContext(context.WithoutCancel(ctx), v.cfg.Client)
	provider, err := oidclib.NewProvider(lasting, v.cfg.Issuer)
	if err != nil {
		v.tried = time.Now()
		return nil, fmt.Errorf("%w: discovery: %w", admin.ErrUnavailable, err)
	}

	v.verifier = provider.Verifier(v.checks())
	return v.verifier, nil
}

// scopes returns the scopes that the values of the claim are mapped to.
func (v *Verifier) scopes(claims map[string]any) []admin.Scope {
	var scopes []admin.Scope
	for _, value := range values(claims, v.cfg.Claim) {
		if scope, known := v.cfg.ScopeMapping[value]; known {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// values returns the texts of a claim.
func values(claims map[string]any, path string) []string {
	name, rest, deeper := strings.Cut(path, ".")
	if inner, ok := claims[name].(map[string]any); ok && deeper {
		return values(inner, rest)
	}

	switch claim := claims[path].(type) { // also matches a claim with dots in its name
	case string:
		return strings.Fields(claim)
	case []any:
		var texts []string
		for _, each := range claim {
			if text, ok := each.(string); ok {
				texts = append(texts, text)
			}
		}
		return texts
	default:
		return nil
	}
}

// ParseScopes parses a map of claim values to scopes: "admins=operator, support=read".
func ParseScopes(text string) (map[string]admin.Scope, error) {
	scopes := map[string]admin.Scope{}
	for pair := range strings.SplitSeq(text, ",") {
		value, scope, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || value == "" || !slices.Contains(admin.Scopes, admin.Scope(scope)) {
			return nil, fmt.Errorf("%q is not value=scope with a scope of %s", strings.TrimSpace(pair), admin.Scopes)
		}
		scopes[value] = admin.Scope(scope)
	}
	return scopes, nil
}

var errNoKey = errors.New("oidc: no key of the file fits the token")

// decode decodes a JWKS.
func decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("oidc: the file is no JWKS: %w", err)
	}
	return nil
}
