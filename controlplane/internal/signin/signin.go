// Package signin manages the sessions of people in the console: signing in with an admin token or
// at an OpenID Connect provider, and the end of a session.
//
// Invariant: only the hash of a session's secret is stored, and a session that was opened with an
// admin token is valid only while that token is.
package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/shared/ident"
	"modelgateway/shared/seal"
)

// The errors of this package. A failed sign-in with a token returns the errors of package admin.
var (
	// ErrNoSession is returned for a secret without a valid session.
	ErrNoSession = errors.New("signin: no such session")
	// ErrNotBegun is returned for a sign-in at a provider that was not begun in this browser, or too long ago.
	ErrNotBegun = errors.New("signin: the sign-in was not begun in this browser, or too long ago")
	// ErrNoScope is returned if a person's claims are mapped to no scope.
	ErrNoScope = errors.New("signin: no scope")
	// ErrDisabled is returned for a way of signing in that is not configured.
	ErrDisabled = errors.New("signin: this way to sign in is disabled")
	// ErrLocked is returned for an address with too many sign-ins.
	ErrLocked = admin.ErrLocked
)

// FreshFor is how long after signing in a session may do what is sensitive.
const FreshFor = 15 * time.Minute

// ID identifies a session. Its text form is "ses_…".
type ID ident.UUID

// ParseID parses the text form. It returns ErrNoSession for any other text.
func ParseID(text string) (ID, error) {
	u, err := ident.Session.Parse(text)
	if err != nil {
		return ID{}, ErrNoSession
	}
	return ID(u), nil
}

// String returns the text form.
func (id ID) String() string { return ident.Session.Format(ident.UUID(id)) }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Hash is the SHA-256 of a session's secret or of a sign-in's state, which are random enough to need no salt.
type Hash [sha256.Size]byte

func hashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }

// Session is a session without its secret. The audit log keeps its JSON form.
type Session struct {
	ID     ID            `json:"id"`
	Name   string        `json:"name"`
	Scopes []admin.Scope `json:"scopes"`
	Method admin.Method  `json:"method"`
	// TokenHash is the hash of the admin token that the session is bound to; nil for a session of an identity provider.
	TokenHash  *admin.Hash `json:"-"`
	Address    string      `json:"address"`
	Agent      string      `json:"agent"`
	CreatedAt  time.Time   `json:"created_at"`
	LastUsedAt time.Time   `json:"-"`
	ExpiresAt  time.Time   `json:"expires_at"`
	// ReadAt is the time of the store's clock at which the session was read.
	ReadAt time.Time `json:"-"`
	// Principal is what the session may do at present.
	Principal admin.Principal `json:"-"`
	// Remembered is set if the session was not checked now, because the store does not answer: see Service.Remembered.
	Remembered bool `json:"-"`
}

// Fresh reports whether the person has signed in lately.
func (s *Session) Fresh() bool { return s.ReadAt.Sub(s.CreatedAt) < FreshFor }

// Context returns a context in which requests to the admin API are those of the session.
func (s *Session) Context(ctx context.Context) context.Context {
	return admin.WithPrincipal(ctx, &s.Principal)
}

// May reports whether the session has a scope.
func (s *Session) May(scope string) bool { return admin.Allows(s.Principal.Scopes, admin.Scope(scope)) }

// Store stores sessions. Each change of a session writes an audit entry.
type Store interface {
	// Create stores a session that ends after length, and returns it with its times.
	Create(ctx context.Context, s *Session, secret Hash, length time.Duration) error
	// Use returns the valid session with a secret, or ErrNoSession. It records the use.
	Use(ctx context.Context, secret Hash, idle time.Duration) (*Session, error)
	List(ctx context.Context, idle time.Duration) ([]Session, error)
	// End returns ErrNoSession for an unknown session. Ending a session again is not an error.
	End(ctx context.Context, id ID) error
	// Failed records that a sign-in of somebody who is known has failed, with the reason.
	Failed(ctx context.Context, reason string) error
}

// Provider is an identity provider at which people sign in.
type Provider interface {
	// URL returns the address to which the browser is sent.
	URL(ctx context.Context, state, nonce, verifier string) (string, error)
	// Exchange returns the person of an authorization code.
	Exchange(ctx context.Context, code, nonce, verifier string) (admin.Principal, error)
	// Claim is the claim that scopes are read from.
	Claim() string
}

// Config holds the dependencies and settings.
type Config struct {
	Store  Store
	Tokens *admin.Service
	// Provider is nil if none is configured, and Key seals sign-ins that have begun there; all replicas have the same. ByToken
	// allows signing in with an admin token.
	Provider Provider
	Key      *seal.Key
	ByToken  bool
	// Idle is how long a session lasts without use, Length how long it lasts in any case.
	Idle, Length time.Duration
	// Now is the clock for sessions that are remembered and for sign-ins that have begun; nil means time.Now.
	Now func() time.Time
}

// Service opens, continues and ends sessions.
type Service struct {
	cfg    Config
	memory memory
}

// NewService returns a Service.
func NewService(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{cfg: cfg}
}

// ByToken reports whether one can sign in with an admin token, ByProvider whether at a provider.
func (s *Service) ByToken() bool { return s.cfg.ByToken }

// ByProvider reports whether one can sign in at an identity provider.
func (s *Service) ByProvider() bool { return s.cfg.Provider != nil }

// Claim is the claim of the provider's tokens that scopes are read from.
func (s *Service) Claim() string { return s.cfg.Provider.Claim() }

// Client is the browser that signs in.
type Client struct {
	Address netip.Addr
	Agent   string
}

// maxAgent bounds the stored name of a browser, in bytes.
const maxAgent = 200

// WithToken opens a session that is bound to an admin token. It returns the session's secret. The errors are those of
// admin.Service.Authenticate, or ErrDisabled.
func (s *Service) WithToken(ctx context.Context, token string, from Client) (*Session, string, error) {
	if !s.cfg.ByToken {
		return nil, "", ErrDisabled
	}
	p, err := s.cfg.Tokens.Authenticate(ctx, token, from.Address)
	if err == nil && p.Method == admin.ByOIDC {
		err = admin.ErrUnauthenticated // its tokens are short-lived: people sign in at the provider itself
	}
	if err != nil {
		return nil, "", errors.Join(err, s.failed(ctx, err))
	}
	hash := admin.HashOf(token)
	return s.open(ctx, p, &hash, from)
}

// failed records a failed sign-in of somebody who is known: with a token that has expired, or at the provider but without
// a scope. Everybody else could fill the audit log.
func (s *Service) failed(ctx context.Context, err error) error {
	if errors.Is(err, admin.ErrExpired) || errors.Is(err, ErrNoScope) {
		return s.cfg.Store.Failed(actingAs(ctx, admin.Principal{Name: "console"}), err.Error())
	}
	return nil
}

func (s *Service) open(ctx context.Context, p admin.Principal, token *admin.Hash, from Client) (*Session, string, error) {
	secret := random()
	session := &Session{
		ID:        ID(ident.New()),
		Name:      p.Name,
		Scopes:    p.Scopes,
		Method:    p.Method,
		TokenHash: token,
		Address:   from.Address.String(),
		Agent:     strings.ToValidUTF8(from.Agent[:min(len(from.Agent), maxAgent)], ""),
		Principal: p,
	}
	if err := s.cfg.Store.Create(actingAs(ctx, p), session, hashOf(secret), s.cfg.Length); err != nil {
		return nil, "", err
	}
	return session, secret, nil
}

func actingAs(ctx context.Context, p admin.Principal) context.Context {
	by := audit.By(ctx)
	by.Name = p.Name
	return audit.WithActor(ctx, by)
}

// random returns 256 random bits as a text.
func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// Resume returns the session with a secret. The error is ErrNoSession if it has ended, or if its token is not valid any
// more.
func (s *Service) Resume(ctx context.Context, secret string) (*Session, error) {
	session, err := s.resume(ctx, secret)
	switch {
	case err == nil:
		s.memory.keep(hashOf(secret), session, s.cfg.Now())
	case errors.Is(err, ErrNoSession):
		s.Forget(secret)
	}
	return session, err
}

func (s *Service) resume(ctx context.Context, secret string) (*Session, error) {
	session, err := s.cfg.Store.Use(ctx, hashOf(secret), s.cfg.Idle)
	if err != nil {
		return nil, err
	}

	if session.TokenHash == nil {
		session.Principal = admin.Principal{
			Name:      session.Name,
			Scopes:    session.Scopes,
			Method:    session.Method,
			ExpiresAt: &session.ExpiresAt,
		}
	} else if session.Principal, err = s.cfg.Tokens.Resume(ctx, *session.TokenHash); errors.Is(err, admin.ErrUnauthenticated) ||
		errors.Is(err, admin.ErrExpired) {
		return nil, errors.Join(ErrNoSession, s.cfg.Store.End(actingAs(ctx, admin.Principal{Name: session.Name}), session.ID))
	}

	session.Principal.CheckAgain = s.checkAgain(session.ID, session.Principal.CheckAgain)
	return session, err
}

// checkAgain returns a function that checks that a session has not ended, nor its token. It is no use of the session.
func (s *Service) checkAgain(id ID, token func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		open, err := s.cfg.Store.List(ctx, s.cfg.Idle)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(open, func(o Session) bool { return o.ID == id }) {
			return admin.ErrUnauthenticated
		}
		if token == nil {
			return nil
		}
		return token(ctx)
	}
}

// List returns the sessions that have not ended, newest first.
func (s *Service) List(ctx context.Context) ([]Session, error) {
	return s.cfg.Store.List(ctx, s.cfg.Idle)
}

// End ends a session, at the wish of the person of the session by.
func (s *Service) End(ctx context.Context, by *Session, id ID) error {
	return s.Revoke(actingAs(ctx, by.Principal), id)
}

// Revoke ends a session at the wish of the actor of the context.
func (s *Service) Revoke(ctx context.Context, id ID) error {
	s.memory.forget(func(_ Hash, session *Session) bool { return session.ID == id })
	return s.cfg.Store.End(ctx, id)
}

// Explain returns a sentence about a failed sign-in for the person; "" for an error that is not the person's.
func Explain(err error) string {
	locked, isLocked := errors.AsType[*admin.LockedError](err)
	switch {
	case isLocked:
		return fmt.Sprintf("Too many sign-ins came from this address. Try again in %d seconds.", int(locked.RetryAfter.Seconds())+1)
	case errors.Is(err, admin.ErrExpired):
		return "The token has expired."
	case errors.Is(err, admin.ErrUnauthenticated):
		return "This is not a valid token."
	case errors.Is(err, ErrNoScope):
		return "You have signed in, but no scope is mapped to your account."
	case errors.Is(err, ErrNotBegun):
		return "This sign-in was not begun in this browser, or more than ten minutes ago. Sign in again."
	case errors.Is(err, ErrDisabled):
		return "This way to sign in is disabled."
	}

	return ""
}
