package webhookstore

import (
	"context"

	"modelgateway/controlplane/internal/postgres/eventstore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
)

// WatchCredentials notes which credentials live proxies find refused, and
// which no longer, and tells the operator of each that changed. It is a job
// and no part of renewals, which must not wait for a change of the catalog.
func (s *Store) WatchCredentials(ctx context.Context) error {
	return s.tx(ctx, "watch credentials", func(q *sqlcgen.Queries) error {
		refused, err := q.MarkRefusedCredentials(ctx)
		if err != nil {
			return err
		}
		accepted, err := q.ClearRefusedCredentials(ctx)
		if err != nil {
			return err
		}
		for _, c := range refused {
			facts := webhook.Facts{Provider: c.ProviderID, Credential: c.Name, CredentialID: c.ID, Reason: c.RefusedReason}
			if err := eventstore.InsertHourly(ctx, q, webhook.Event{Type: webhook.CredentialRefused, Facts: facts}, c.ID); err != nil {
				return err
			}
		}
		for _, c := range accepted {
			facts := webhook.Facts{Provider: c.ProviderID, Credential: c.Name, CredentialID: c.ID}
			if err := eventstore.InsertHourly(ctx, q, webhook.Event{Type: webhook.CredentialAccepted, Facts: facts}, c.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// TellOperator writes an event that no change in the database causes, at most
// one of its type in an hour.
func (s *Store) TellOperator(ctx context.Context, e webhook.Event) error {
	return s.tx(ctx, "tell operator", func(q *sqlcgen.Queries) error { return eventstore.InsertHourly(ctx, q, e, "") })
}
