package webhookstore

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
)

// UpdateRefusedCredentials marks the credentials that live proxies report as
// refused, clears those that none reports any more, and writes an event for each
// that changed. It runs as a separate job, because heartbeats must not wait for a
// change of the catalog.
func (s *Store) UpdateRefusedCredentials(ctx context.Context) error {
	return s.tx(ctx, "update refused credentials", func(q *sqlcgen.Queries) error {
		refused, err := q.MarkRefusedCredentials(ctx)
		if err != nil {
			return err
		}

		accepted, err := q.ClearRefusedCredentials(ctx)
		if err != nil {
			return err
		}

		var events []webhook.Event
		for _, c := range refused {
			events = append(events, webhook.CredentialEvent(c.ProviderID, c.Name, c.ID, c.RefusedReason, time.Now()))
		}

		for _, c := range accepted {
			events = append(events, webhook.CredentialEvent(c.ProviderID, c.Name, c.ID, "", time.Now()))
		}

		return changestore.InsertEvents(ctx, q, events...)
	})
}

// InsertEvent writes an event that is not caused by a change in the database.
func (s *Store) InsertEvent(ctx context.Context, e webhook.Event) error {
	return s.tx(ctx, "write event", func(q *sqlcgen.Queries) error { return changestore.InsertEvents(ctx, q, e) })
}
