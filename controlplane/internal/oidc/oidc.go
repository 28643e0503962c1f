// Package oidc owns the check of bearer tokens of an OpenID Connect provider:
// who signed in there, and which scopes of ours the claims of the token give.
// It implements admin.Verifier.
//
// Keys come from the provider's discovery or from a file. They are kept, and
// read anew when a token names one that is not known or when the file changes,
// so that the provider can change its keys at any time.
package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	oidclib "github.com/coreos/go-oidc/v3/oidc"

	"modelgateway/controlplane/internal/admin"
)

// Config says which tokens are taken.
type Config struct {
	// Issuer and Audience are what a token must name.
	Issuer, Audience string
	// KeysFile holds the provider's keys (a JWKS); empty finds them by discovery.
	KeysFile string
	// Claim is the one that scopes come from: a list, or a text with spaces. A dot leads into an object.
	Claim string
	// Scopes maps its values to scopes.
	Scopes map[string]admin.Scope
	// Skew is how far the provider's clock may be off.
	Skew time.Duration
	// Client reaches the provider; nil is one with a time limit.
	Client *http.Client
}

const (
	// providerTimeout bounds a call to the provider, discoveryPause the time between two attempts to find it.
	providerTimeout = 5 * time.Second
	discoveryPause  = 5 * time.Second
)

// noKeys begins the error of the library when the keys cannot be read; it has no error of its own for that. Only the
// beginning tells: an error can end with what the token says.
const noKeys = "failed to verify signature: fetching keys"

var algorithms = []string{oidclib.RS256, oidclib.ES256}

// Verifier checks tokens. It is safe for concurrent use.
type Verifier struct {
	cfg Config

	mu       sync.Mutex
	verifier *oidclib.IDTokenVerifier
	// tried is when discovery last failed.
	tried time.Time
}

var _ admin.Verifier = (*Verifier)(nil)

// New returns a Verifier. The provider need not answer yet; a file of keys
// must be there.
func New(cfg Config) (*Verifier, error) {
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: providerTimeout}
	}
	v := &Verifier{cfg: cfg}
	if cfg.KeysFile != "" {
		keys := &fileKeys{path: cfg.KeysFile}
		if err := keys.load(); err != nil {
			return nil, err
		}
		v.verifier = oidclib.NewVerifier(cfg.Issuer, keys, v.checks())
	}
	return v, nil
}

func (v *Verifier) checks() *oidclib.Config {
	return &oidclib.Config{
		ClientID: v.cfg.Audience, SupportedSigningAlgs: algorithms,
		// The library allows for a clock that is ahead of ours by itself.
		Now: func() time.Time { return time.Now().Add(-v.cfg.Skew) },
	}
}

// Verify implements admin.Verifier.
func (v *Verifier) Verify(ctx context.Context, text string) (admin.Principal, error) {
	verifier, err := v.found(ctx)
	if err != nil {
		return admin.Principal{}, err
	}
	// What the library waits for is not only ours: other requests may want the same keys.
	token, err := verifier.Verify(oidclib.ClientContext(ctx, v.cfg.Client), text)
	if _, expired := errors.AsType[*oidclib.TokenExpiredError](err); expired {
		return admin.Principal{}, admin.ErrExpired
	}
	switch {
	case err == nil:
	case strings.HasPrefix(err.Error(), noKeys):
		return admin.Principal{}, fmt.Errorf("%w: %w", admin.ErrUnavailable, err)
	default:
		return admin.Principal{}, fmt.Errorf("%w: %w", admin.ErrUnauthenticated, err)
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil || token.Subject == "" {
		return admin.Principal{}, fmt.Errorf("%w: its claims are no object with a subject", admin.ErrUnauthenticated)
	}
	return admin.Principal{Name: "oidc:" + token.Subject, Scopes: v.scopes(claims)}, nil
}

// found returns the library's verifier, after asking the provider where its
// keys are.
func (v *Verifier) found(ctx context.Context) (*oidclib.IDTokenVerifier, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verifier != nil {
		return v.verifier, nil
	}
	if time.Since(v.tried) < discoveryPause {
		return nil, fmt.Errorf("%w: the provider did not answer a moment ago", admin.ErrUnavailable)
	}
	// The provider's key set lives on with the context of its discovery.
	lasting := oidclib.ClientContext(context.WithoutCancel(ctx), v.cfg.Client)
	provider, err := oidclib.NewProvider(lasting, v.cfg.Issuer)
	if err != nil {
		v.tried = time.Now()
		return nil, fmt.Errorf("%w: discovery: %w", admin.ErrUnavailable, err)
	}
	v.verifier = provider.Verifier(v.checks())
	return v.verifier, nil
}

// scopes are those that the values of the claim are mapped to.
func (v *Verifier) scopes(claims map[string]any) []admin.Scope {
	var scopes []admin.Scope
	for _, value := range values(claims, v.cfg.Claim) {
		if scope, known := v.cfg.Scopes[value]; known {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// values are the texts of a claim.
func values(claims map[string]any, path string) []string {
	name, rest, deeper := strings.Cut(path, ".")
	if inner, ok := claims[name].(map[string]any); ok && deeper {
		return values(inner, rest)
	}
	switch claim := claims[path].(type) { // also one that has dots in its name
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

// ParseScopes reads a map of values to scopes: "admins=operator, support=read".
func ParseScopes(text string) (map[string]admin.Scope, error) {
	scopes := map[string]admin.Scope{}
	for pair := range strings.SplitSeq(text, ",") {
		value, scope, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || value == "" || !admin.Allows([]admin.Scope{admin.Scope(scope)}, admin.Read) {
			return nil, fmt.Errorf("%q is not value=scope with a scope of %s, %s and %s", strings.TrimSpace(pair), admin.Read, admin.Cabinet, admin.Operator)
		}
		scopes[value] = admin.Scope(scope)
	}
	return scopes, nil
}

var errNoKey = errors.New("oidc: no key of the file fits the token")

// decode reads a JWKS.
func decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("oidc: the file is no JWKS: %w", err)
	}
	return nil
}
