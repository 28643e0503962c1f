package app

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/config"
	"modelgateway/controlplane/internal/console"
	"modelgateway/controlplane/internal/oidc"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/shared/seal"
)

// withConsole returns a handler that serves the console beside the admin API, and adds its job.
func (a *app) withConsole(
	api http.Handler,
	sessions *signin.Service,
	address func(*http.Request) netip.Addr,
	jobs *jobs,
) (http.Handler, error) {
	cfg := &a.cfg.Console
	if !cfg.Enabled {
		return api, nil
	}

	jobs.every("delete_console_sessions", time.Hour, accountstore.NewSessions(a.adminDB).DeleteOld)
	pages, err := console.New(console.Config{
		Sessions:      sessions,
		API:           api,
		Log:           a.log,
		Address:       address,
		BaseURL:       cfg.BaseURL,
		APIURL:        cfg.APIURL,
		Environment:   cfg.Environment,
		Build:         a.version,
		SessionLength: cfg.SessionLength,
	})
	if err != nil {
		return nil, err
	}

	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/console/", pages)
	mux.Handle("/console", pages)

	return mux, nil
}

// newSessions returns the sessions of people in the console. The key seals sign-ins that have begun at a provider.
func (a *app) newSessions(tokens *admin.Service, key *seal.Key) (*signin.Service, error) {
	cfg := &a.cfg.Console
	provider, err := newProvider(&a.cfg)
	if err != nil {
		return nil, err
	}
	return signin.NewService(signin.Config{
		Store:    accountstore.NewSessions(a.adminDB),
		Tokens:   tokens,
		Provider: provider,
		Key:      key,
		ByToken:  cfg.ByToken(),
		Idle:     cfg.SessionIdle,
		Length:   cfg.SessionLength,
	}), nil
}

// newProvider returns the OpenID Connect provider at which people sign in; nil if none is configured.
func newProvider(cfg *config.Config) (signin.Provider, error) {
	client := &cfg.Console.OIDC
	if client.ClientID == "" {
		return nil, nil //nolint:nilnil // an absent provider is valid
	}

	scopes, err := oidc.ParseScopes(cfg.Admin.OIDC.ScopeMapping)
	if err != nil {
		return nil, fmt.Errorf("admin.oidc.scope_mapping: %w", err)
	}

	return oidc.NewFlow(oidc.FlowConfig{
		Config: oidc.Config{
			Issuer:       cfg.Admin.OIDC.Issuer,
			JWKSFile:     cfg.Admin.OIDC.JWKSFile,
			Claim:        cfg.Admin.OIDC.Claim,
			ScopeMapping: scopes,
			ClockSkew:    clockSkew,
		},
		ClientID:     client.ClientID,
		ClientSecret: string(client.ClientSecret),
		Scopes:       strings.Fields(client.Scopes),
		RedirectURL:  strings.TrimRight(cfg.Console.BaseURL, "/") + "/console/sign-in/callback",
	})
}
