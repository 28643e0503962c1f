package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/signin"
)

// FlowConfig configures the sign-in of people at a provider. The audience of Config is not used: that of an ID token is
// the client.
type FlowConfig struct {
	Config
	ClientID, ClientSecret string
	// RedirectURL is the address to which the provider sends the browser back.
	RedirectURL string
	// Scopes are asked for beside openid.
	Scopes []string
}

// Flow is the authorization code flow with PKCE. It implements signin.Provider.
type Flow struct {
	cfg      FlowConfig
	verifier *Verifier

	mu       sync.Mutex
	provider *oidclib.Provider
	// tried is the time of the last failed discovery.
	tried time.Time
}

var _ signin.Provider = (*Flow)(nil)

// NewFlow returns a Flow. The provider need not be reachable yet.
func NewFlow(cfg FlowConfig) (*Flow, error) {
	cfg.Audience = cfg.ClientID
	v, err := New(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Flow{cfg: cfg, verifier: v}, nil
}

func (f *Flow) Claim() string { return f.cfg.Claim }

// client returns the OAuth 2.0 client. The first call discovers the provider.
func (f *Flow) client(ctx context.Context) (*oauth2.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.provider == nil {
		if time.Since(f.tried) < discoveryPause {
			return nil, fmt.Errorf("%w: the provider did not answer a moment ago", admin.ErrUnavailable)
		}
		provider, err := oidclib.NewProvider(oidclib.ClientContext(context.WithoutCancel(ctx), f.verifier.cfg.Client), f.cfg.Issuer)
		if err != nil {
			f.tried = time.Now()
			return nil, fmt.Errorf("%w: discovery: %w", admin.ErrUnavailable, err)
		}
		f.provider = provider
	}

	return &oauth2.Config{
		ClientID:     f.cfg.ClientID,
		ClientSecret: f.cfg.ClientSecret,
		RedirectURL:  f.cfg.RedirectURL,
		Endpoint:     f.provider.Endpoint(),
		Scopes:       append([]string{oidclib.ScopeOpenID}, f.cfg.Scopes...),
	}, nil
}

func (f *Flow) URL(ctx context.Context, state, nonce, verifier string) (string, error) {
	c, err := f.client(ctx)
	if err != nil {
		return "", err
	}
	return c.AuthCodeURL(state, oidclib.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), nil
}

// Exchange implements signin.Provider. The error is admin.ErrUnauthenticated if the provider refuses the code or the ID
// token is not valid, or admin.ErrUnavailable.
func (f *Flow) Exchange(ctx context.Context, code, nonce, verifier string) (admin.Principal, error) {
	c, err := f.client(ctx)
	if err != nil {
		return admin.Principal{}, err
	}

	token, err := c.Exchange(oidclib.ClientContext(ctx, f.verifier.cfg.Client), code, oauth2.VerifierOption(verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response.StatusCode < 500 {
		return admin.Principal{}, fmt.Errorf(
			"%w: the provider refuses the code: %s",
			admin.ErrUnauthenticated,
			strings.ToValidUTF8(refused.ErrorCode, "?"),
		)
	}
	if err != nil {
		return admin.Principal{}, fmt.Errorf("%w: exchange the code: %w", admin.ErrUnavailable, err)
	}

	text, _ := token.Extra("id_token").(string)
	verified, p, err := f.verifier.verify(ctx, text)
	if err != nil {
		return admin.Principal{}, err
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(nonce)) != 1 {
		return admin.Principal{}, fmt.Errorf("%w: the nonce of the ID token is another", admin.ErrUnauthenticated)
	}

	return p, nil
}
