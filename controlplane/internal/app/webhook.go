package app

import (
	"context"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/webhookstore"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/controlplane/internal/webhooksender"
)

// buildWebhooks adds the jobs that write events about the fleet and the customers, and the delivery of webhooks.
func (a *app) buildWebhooks(keys *vault.Vault, jobs *jobs) (*webhook.Service, error) {
	cfg := &a.cfg.Webhook
	allowed, err := cfg.Networks()
	if err != nil {
		return nil, fmt.Errorf("webhook.allowed_networks: %w", err)
	}

	store := webhookstore.New(a.adminDB)
	sender := webhooksender.New(webhooksender.Config{Allowed: allowed, Timeout: cfg.Timeout, UserAgent: "modelgateway/" + a.version})
	dispatcher := webhook.NewDispatcher(webhook.DispatchConfig{
		Queue:        store,
		Sender:       sender,
		Vault:        keys,
		Log:          a.log,
		DisableAfter: cfg.DisableAfter,
	}, a.registry)

	a.components.Add("webhooks",
		func(ctx context.Context) error { dispatcher.Start(ctx); return nil },
		func(context.Context) error { dispatcher.Stop(); sender.Close(); return nil })

	jobs.every("update_refused_credentials", 2*time.Second, store.UpdateRefusedCredentials)
	jobs.every("report_clients_gone", 5*time.Minute, func(ctx context.Context) error { return store.ReportClientsGone(ctx, time.Now()) })
	jobs.every("report_expiries_of_keys", 10*time.Second, func(ctx context.Context) error {
		return accountstore.NewKeys(a.adminDB).ReportExpiries(ctx, time.Now())
	})
	jobs.every("expire_webhook_events", time.Hour, dispatcher.Expire)
	return webhook.NewService(webhook.Config{Store: store, Vault: keys, Insecure: cfg.AllowHTTP}), nil
}

// ledgerAlarm sends failed ledger checks to the operator's webhooks.
type ledgerAlarm struct{ store *webhookstore.Store }

func (a ledgerAlarm) LedgerCheckFailed(ctx context.Context, checks []string) error {
	return a.store.InsertEvent(ctx, webhook.CheckFailedEvent(checks, time.Now()))
}
