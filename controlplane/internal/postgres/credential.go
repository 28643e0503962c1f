package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/lease"
)

// refusedOf is what a renewal reports of credentials, as it is kept.
func refusedOf(r *lease.Renew) ([]byte, error) {
	if len(r.Refused) == 0 {
		return []byte("[]"), nil
	}
	text, err := json.Marshal(r.Refused)
	if err != nil {
		return nil, fmt.Errorf("encode refused credentials: %w", err)
	}
	return text, nil
}

// WatchCredentials notes which credentials live proxies find refused, and
// which no longer, and tells the operator of each that changed. It is a job
// and no part of renewals, which must not wait for a change of the catalog.
func (s WebhookStore) WatchCredentials(ctx context.Context) error {
	return s.tx(ctx, "watch credentials", func(q *sqlcgen.Queries) error {
		refused, err := q.RefuseCredentials(ctx)
		if err != nil {
			return err
		}
		accepted, err := q.AcceptCredentials(ctx)
		if err != nil {
			return err
		}
		for _, c := range refused {
			facts := webhook.Facts{Provider: c.ProviderID, Credential: c.Name, CredentialID: c.ID, Reason: c.RefusedReason}
			if err := emitHourly(ctx, q, webhook.Event{Type: webhook.CredentialRefused, Facts: facts}, c.ID); err != nil {
				return err
			}
		}
		for _, c := range accepted {
			facts := webhook.Facts{Provider: c.ProviderID, Credential: c.Name, CredentialID: c.ID}
			if err := emitHourly(ctx, q, webhook.Event{Type: webhook.CredentialAccepted, Facts: facts}, c.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// refusedCredentials reads those of the fleet's view.
func refusedCredentials(ctx context.Context, q *sqlcgen.Queries) ([]fleet.Refused, error) {
	rows, err := q.RefusedCredentials(ctx)
	found := make([]fleet.Refused, len(rows))
	for i, r := range rows {
		found[i] = fleet.Refused{
			Provider: r.ProviderID, Credential: r.Name, CredentialID: r.ID, Reason: r.RefusedReason, Since: r.Since, Dataplanes: r.Dataplanes,
		}
	}
	return found, err
}
