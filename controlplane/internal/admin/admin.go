// Package admin controls access to the admin API: tokens and their scopes.
//
// Invariant: only the hash of a token is stored; its text is shown once.
package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
)

// The errors of this package. Invalid input is reported as validation.Errors.
var (
	// ErrUnauthenticated is returned for an unknown or revoked token, ErrExpired for an expired one.
	ErrUnauthenticated = errors.New("admin: not a valid token")
	ErrExpired         = errors.New("admin: the token has expired")
	// ErrUnavailable is returned while tokens cannot be verified.
	ErrUnavailable = errors.New("admin: cannot check the token now")
	ErrNotFound    = errors.New("admin: no such token")
	// ErrIssued is returned by Create if the token exists already: its text cannot be shown again.
	ErrIssued = errors.New("admin: the token was issued before and its text is not kept")
)

// Scope is a permission.
type Scope string

// The scopes.
const (
	// Any is needed by operations that every valid token may call. It cannot be granted.
	Any Scope = "any"
	// Read allows reading what the cabinet shows: accounts, keys, money, usage and the catalog.
	Read Scope = "read"
	// Observe also allows reading everything else, such as the fleet, the diagnosis and the audit log.
	Observe Scope = "observe"
	// Cabinet also allows managing accounts with their keys and models, and webhooks of customers' events.
	Cabinet Scope = "cabinet"
	// Credits allows booking credits, refunds and corrections, and nothing else.
	Credits Scope = "credits"
	// RevealKeys allows showing the secrets of existing API keys, and nothing else.
	RevealKeys Scope = "keys.reveal"
	// Operator allows everything.
	Operator Scope = "operator"
)

// Scopes are all scopes.
var Scopes = []Scope{Read, Observe, Cabinet, Credits, RevealKeys, Operator}

// Allows reports whether one of the scopes includes the needed one. An unknown scope is never
// allowed.
func Allows(scopes []Scope, needed Scope) bool {
	return slices.ContainsFunc(scopes, func(s Scope) bool { return s.includes(needed) })
}

func (s Scope) includes(needed Scope) bool {
	if !slices.Contains(Scopes, s) {
		return false
	}
	if needed == Any {
		return true
	}
	switch s {
	case Operator:
		return slices.Contains(Scopes, needed)
	case Cabinet, Observe:
		return needed == s || needed == Read
	default:
		return s == needed
	}
}

// ID identifies a token. Its text form is "tok_…".
type ID ident.UUID

// ParseID parses the text form. It returns ErrNotFound for any other text.
func ParseID(text string) (ID, error) {
	u, err := ident.Token.Parse(text)
	if err != nil {
		return ID{}, ErrNotFound
	}
	return ID(u), nil
}

// String returns the text form.
func (id ID) String() string { return ident.Token.Format(ident.UUID(id)) }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Token is an admin token without its text. The audit log keeps its JSON form.
type Token struct {
	ID         ID         `json:"id"`
	Name       string     `json:"name"`
	Scopes     []Scope    `json:"scopes"`
	Limits     Limits     `json:"limits,omitzero"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedAt *time.Time `json:"-"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
}

// Hash is the SHA-256 of a token's text, which is random enough to need no salt.
type Hash [sha256.Size]byte

// Method is how a principal has proven its identity.
type Method string

// The methods: a token that Create has made, one of the configuration, and one of an identity provider.
const (
	ByToken     Method = "token"
	ByBootstrap Method = "bootstrap"
	ByOIDC      Method = "oidc"
)

// Principal is the authenticated sender of a request.
type Principal struct {
	// Name is the name in the audit log: the token's name with its id, "bootstrap", or "oidc:" with the subject.
	Name   string
	Scopes []Scope
	Limits Limits
	Method Method
	// ExpiresAt is when the proof of the identity expires; nil means never.
	ExpiresAt *time.Time
	// CheckAgain returns ErrUnauthenticated or ErrExpired once the proof is revoked or its session has ended, and any other
	// error if that cannot be known. nil means that only ExpiresAt ends it.
	CheckAgain func(ctx context.Context) error
}

// Ended reports whether the proof of the identity has ended since the principal was authenticated. Responses that last ask
// it from time to time.
func (p *Principal) Ended(ctx context.Context) bool {
	if p.ExpiresAt != nil && !time.Now().Before(*p.ExpiresAt) {
		return true
	}
	if p.CheckAgain == nil {
		return false
	}
	err := p.CheckAgain(ctx)
	return errors.Is(err, ErrUnauthenticated) || errors.Is(err, ErrExpired)
}

type principalKey struct{}

// WithPrincipal returns a context of requests of an authenticated principal. Requests from the network have none: the
// console uses it for the requests that it makes for a session.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalOf returns the principal of a context; nil if it has none.
func PrincipalOf(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// SeesProviderCost reports whether the sender of a request may see what requests cost the operator. A portal must not be able to
// show it to customers by mistake, and a monitoring system has no need of it.
func SeesProviderCost(ctx context.Context) bool {
	p := PrincipalOf(ctx)
	return p != nil && Allows(p.Scopes, Operator)
}

// Bootstrap is the name of the tokens in the configuration.
const Bootstrap = "bootstrap"

// Store stores tokens.
type Store interface {
	// Create returns ErrIssued if a token with this id exists already.
	Create(ctx context.Context, t Token, h Hash) (Token, error)
	List(ctx context.Context) ([]Token, error)
	Revoke(ctx context.Context, id ID) error
	// Use returns the token with a hash, or ErrNotFound. It records the use of a valid token, at most once a minute.
	// expired reports whether the token has expired by the store's clock.
	Use(ctx context.Context, h Hash) (t Token, expired bool, err error)
}

// Verifier verifies tokens of an identity provider. It returns ErrUnauthenticated for a token that
// is not from the provider, and ErrExpired for an expired one.
type Verifier interface {
	Verify(ctx context.Context, text string) (Principal, error)
}

// BootstrapTokens are the tokens of the configuration.
type BootstrapTokens struct {
	// Texts are valid with every scope; several are configured while one replaces another.
	Texts []string
	// ExpiresAt is when they stop being valid; zero means never.
	ExpiresAt time.Time
}

// Service manages and authenticates tokens.
type Service struct {
	store            Store
	bootstrap        []Hash
	bootstrapExpires time.Time
	// verifier is nil if no identity provider is configured.
	verifier Verifier
	guard    *Guard
}

// NewService returns a Service. v may be nil.
func NewService(store Store, bootstrap BootstrapTokens, v Verifier) *Service {
	s := &Service{
		store:            store,
		bootstrapExpires: bootstrap.ExpiresAt,
		verifier:         v,
		guard:            NewGuard(time.Now),
	}
	for _, text := range bootstrap.Texts {
		s.bootstrap = append(s.bootstrap, HashOf(text))
	}
	return s
}

// HashOf returns the hash of a token's text.
func HashOf(text string) Hash { return sha256.Sum256([]byte(text)) }

// Authenticate returns the principal of a token. The error is ErrUnauthenticated, ErrExpired,
// ErrUnavailable, or a LockedError in place of the first two after too many failures of the
// address. A valid token is accepted from every address.
func (s *Service) Authenticate(ctx context.Context, text string, from netip.Addr) (Principal, error) {
	if text == "" {
		return Principal{}, ErrUnauthenticated
	}
	h := HashOf(text)
	p, err := s.identify(ctx, text, h)
	switch {
	case err == nil:
		s.guard.Accepted(h)
	case errors.Is(err, ErrUnauthenticated), errors.Is(err, ErrExpired):
		if locked := s.guard.Failed(from, h); locked != nil {
			err = locked
		}
	}
	return p, err
}

func (s *Service) identify(ctx context.Context, text string, h Hash) (Principal, error) {
	if !s.isBootstrap(h) && !wellFormed(text) {
		if s.verifier != nil && strings.Count(text, ".") == 2 { // a JWT
			return s.verifier.Verify(ctx, text)
		}
		return Principal{}, ErrUnauthenticated
	}
	return s.Resume(ctx, h)
}

// Resume returns the present principal of a token that was accepted before, by its hash. It is for sessions that are
// bound to a token. The error is ErrUnauthenticated if the token was revoked or removed, or ErrExpired.
func (s *Service) Resume(ctx context.Context, h Hash) (Principal, error) {
	p, err := s.resume(ctx, h)
	p.CheckAgain = func(ctx context.Context) error {
		_, err := s.resume(ctx, h)
		return err
	}
	return p, err
}

func (s *Service) resume(ctx context.Context, h Hash) (Principal, error) {
	if s.isBootstrap(h) {
		if !s.bootstrapExpires.IsZero() && !time.Now().Before(s.bootstrapExpires) {
			return Principal{}, ErrExpired
		}
		p := Principal{Name: Bootstrap, Scopes: []Scope{Operator}, Method: ByBootstrap}
		if !s.bootstrapExpires.IsZero() {
			p.ExpiresAt = &s.bootstrapExpires
		}
		return p, nil
	}

	leave, err := s.guard.Enter(ctx, h)
	if err != nil {
		return Principal{}, err
	}
	defer leave()
	t, expired, err := s.store.Use(ctx, h)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && t.RevokedAt != nil:
		return Principal{}, ErrUnauthenticated
	case err != nil:
		return Principal{}, err
	case expired:
		return Principal{}, ErrExpired
	}

	return Principal{
		Name:      t.actor(),
		Scopes:    t.Scopes,
		Limits:    t.Limits,
		Method:    ByToken,
		ExpiresAt: t.ExpiresAt,
	}, nil
}

// isBootstrap compares in a time that does not depend on the hash.
func (s *Service) isBootstrap(h Hash) bool {
	equal := 0
	for i := range s.bootstrap {
		equal |= subtle.ConstantTimeCompare(h[:], s.bootstrap[i][:])
	}
	return equal == 1
}

// wellFormed reports whether the text can be that of a token that Create has made. Any other text
// is not looked up.
func wellFormed(text string) bool {
	random, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return false
	}
	decoded, err := base64.RawURLEncoding.DecodeString(random)
	return err == nil && len(decoded) == randomSize
}

// actor returns the token's name in the audit log. The id makes it unique.
func (t *Token) actor() string { return t.Name + " (" + t.ID.String() + ")" }

const (
	prefix     = "mgwa_"
	randomSize = 32
	maxNameLen = 200
)

// Create creates a token and returns it with its text, which is not stored.
func (s *Service) Create(ctx context.Context, t Token) (Token, string, error) {
	var invalid validation.Errors
	if t.Name == "" || utf8.RuneCountInString(t.Name) > maxNameLen {
		invalid.Add("name", "must have 1 to %d characters", maxNameLen)
	}
	if len(t.Scopes) == 0 {
		invalid.Add("scopes", "must not be empty")
	}
	if t.ExpiresAt != nil && !t.ExpiresAt.After(time.Now()) {
		invalid.Add("expires_at", "must be in the future")
	}
	if n := t.Limits.CreditsPerDay; n != nil && *n < 0 {
		invalid.Add("credits_per_day", "must not be negative")
	}
	if n := t.Limits.RevealsPerDay; n != nil && *n < 0 {
		invalid.Add("reveals_per_day", "must not be negative")
	}

	for i, scope := range t.Scopes {
		if !slices.Contains(Scopes, scope) {
			invalid.Add(validation.Index("scopes", i), "is not a scope")
		}
	}

	if err := invalid.Err(); err != nil {
		return Token{}, "", err
	}

	random := make([]byte, randomSize)
	_, _ = rand.Read(random) // never fails
	text := prefix + base64.RawURLEncoding.EncodeToString(random)
	made, err := s.store.Create(ctx, t, HashOf(text))
	if err != nil {
		return Token{}, "", err
	}

	return made, text, nil
}

// List returns all tokens, including revoked and expired ones.
func (s *Service) List(ctx context.Context) ([]Token, error) { return s.store.List(ctx) }

// Revoke revokes a token. Revoking it again is not an error.
func (s *Service) Revoke(ctx context.Context, id ID) error { return s.store.Revoke(ctx, id) }
