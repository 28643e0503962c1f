package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// pending is a sign-in at a provider that has begun. The browser keeps it, sealed: what anybody can begin without a credential takes
// no room here, so it needs no bound, and nobody who begins many keeps others from signing in. A browser that returns it a second
// time gets nowhere, because the provider takes a code once.
type pending struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	ReturnTo string    `json:"return_to"`
	BegunAt  time.Time `json:"begun_at"`
}

// PendingFor is how long a person may take at the provider.
const PendingFor = 10 * time.Minute

// pendingContext is the context of the seal of a pending sign-in.
const pendingContext = "console sign-in"

// Begin begins a sign-in at the provider. It returns the address to send the browser to, and the sealed sign-in, which the browser
// must return to Finish.
func (s *Service) Begin(ctx context.Context, returnTo string) (url, sealed string, err error) {
	if s.cfg.Provider == nil {
		return "", "", ErrDisabled
	}

	p := pending{random(), random(), random(), returnTo, s.cfg.Now()}
	if url, err = s.cfg.Provider.URL(ctx, p.State, p.Nonce, p.Verifier); err != nil {
		return "", "", err
	}

	text, err := json.Marshal(p)
	if err != nil {
		return "", "", fmt.Errorf("begin a sign-in: %w", err)
	}

	return url, base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal(text, pendingContext)), nil
}

// opened returns a sign-in that Begin has sealed. The error is ErrNotBegun if it is another one than the provider's state names.
func (s *Service) opened(sealed, state string) (p pending, err error) {
	text, err := base64.RawURLEncoding.DecodeString(sealed)
	if err == nil {
		text, err = s.cfg.Key.Open(text, pendingContext)
	}
	if err == nil {
		err = json.Unmarshal(text, &p)
	}

	age := s.cfg.Now().Sub(p.BegunAt)
	if err != nil || p.State != state || age < -PendingFor || age > PendingFor {
		return pending{}, ErrNotBegun
	}

	return p, nil
}

// Finish opens a session after the provider has returned the browser with a state and a code. It returns the session's secret and
// the page that the person wanted.
func (s *Service) Finish(
	ctx context.Context, sealed, state, code string, from Client,
) (session *Session, secret, returnTo string, err error) {
	if s.cfg.Provider == nil {
		return nil, "", "", ErrDisabled
	}

	begun, err := s.opened(sealed, state)
	if err != nil {
		return nil, "", "", err
	}

	p, err := s.cfg.Provider.Exchange(ctx, code, begun.Nonce, begun.Verifier)
	if err == nil && len(p.Scopes) == 0 {
		err = fmt.Errorf("%w for %s", ErrNoScope, p.Name)
	}
	if err != nil {
		return nil, "", "", errors.Join(err, s.failed(ctx, err))
	}

	session, secret, err = s.open(ctx, p, nil, from)
	return session, secret, begun.ReturnTo, err
}
