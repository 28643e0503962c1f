package app

import (
	"net/http"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/console"
	"modelgateway/controlplane/internal/postgres/signinstore"
	"modelgateway/controlplane/internal/signin"
)

// withConsole returns a handler that serves the console beside the admin API.
func (a *app) withConsole(api http.Handler, tokens *admin.Service) (http.Handler, error) {
	cfg := &a.cfg.Console
	if !cfg.Enabled {
		return api, nil
	}
	sessions := signin.NewService(signin.Config{
		Store: signinstore.New(a.adminDB), Tokens: tokens, ByToken: cfg.ByToken(a.cfg.Admin.OIDC.Issuer != ""),
		Idle: cfg.SessionIdle, Length: cfg.SessionLength,
	})
	pages, err := console.New(console.Config{
		Sessions: sessions, API: api, Log: a.log, BaseURL: cfg.BaseURL, Environment: cfg.Environment, Build: a.version,
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
