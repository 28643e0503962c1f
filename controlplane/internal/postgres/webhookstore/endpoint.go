// Package webhookstore keeps webhook endpoints, events and deliveries in Postgres: it
// implements webhook.Store and webhook.Queue.
package webhookstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Store keeps endpoints, events and deliveries.
type Store struct{ db *postgres.DB }

// New returns a store that uses db.
func New(db *postgres.DB) *Store { return &Store{db} }

var (
	_ webhook.Store = (*Store)(nil)
	_ webhook.Queue = (*Store)(nil)
)

// tx runs a change that proxies need not apply, so it takes no revision.
func (s *Store) tx(ctx context.Context, operation string, fn func(q *sqlcgen.Queries) error) error {
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		return postgres.Translate(operation, fn(sqlcgen.New(tx)))
	})
}

func (s *Store) Create(
	ctx context.Context, e webhook.Endpoint, secret webhook.Secret,
) (made webhook.Endpoint, kept webhook.Secret, err error) {
	err = s.tx(ctx, "create endpoint", func(q *sqlcgen.Queries) error {
		row, err := q.InsertEndpoint(ctx, sqlcgen.InsertEndpointParams{
			ID:          ident.UUID(e.ID),
			Url:         e.URL,
			Description: e.Description,
			EventTypes:  postgres.Strings(e.EventTypes),
			Enabled:     e.Enabled,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			if row, err = q.GetEndpoint(ctx, ident.UUID(e.ID)); err != nil {
				return err
			}
			first, err := q.FirstWebhookSecret(ctx, row.ID)
			made, kept = toEndpoint(&row), toWebhookSecret(&first)
			return err
		}

		if err != nil {
			return err
		}

		made, kept = toEndpoint(&row), secret
		if err := insertSecret(ctx, q, e.ID, secret); err != nil {
			return err
		}

		return changestore.InsertAudit(ctx, q, "webhook.create", e.ID, nil, made)
	})
	return made, kept, err
}

func insertSecret(ctx context.Context, q *sqlcgen.Queries, id webhook.ID, s webhook.Secret) error {
	_, err := q.InsertWebhookSecret(ctx, sqlcgen.InsertWebhookSecretParams{
		ID:          s.ID,
		EndpointID:  ident.UUID(id),
		Sealed:      s.Sealed.Text,
		CipherKeyID: s.Sealed.KeyID,
	})
	return err
}

func (s *Store) Get(ctx context.Context, id webhook.ID) (webhook.Endpoint, error) {
	row, err := s.db.Queries().GetEndpoint(ctx, ident.UUID(id))
	if err != nil {
		return webhook.Endpoint{}, postgres.NotFoundAs("get endpoint", err, webhook.ErrNotFound)
	}
	return toEndpoint(&row), nil
}

func (s *Store) List(ctx context.Context, query webhook.Query) ([]webhook.Endpoint, error) {
	rows, err := s.db.Queries().
		ListEndpoints(ctx, sqlcgen.ListEndpointsParams{After: ident.UUID(query.After), RowLimit: int32(query.Limit)})
	endpoints := make([]webhook.Endpoint, len(rows))
	for i := range rows {
		endpoints[i] = toEndpoint(&rows[i])
	}
	return endpoints, postgres.Translate("list endpoints", err)
}

func (s *Store) Update(
	ctx context.Context, id webhook.ID, decide func(webhook.Endpoint) (webhook.Endpoint, error),
) (after webhook.Endpoint, err error) {
	err = s.tx(ctx, "update endpoint", func(q *sqlcgen.Queries) error {
		row, err := q.LockEndpoint(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("lock endpoint", err, webhook.ErrNotFound)
		}

		before := toEndpoint(&row)
		wanted, err := decide(before)
		if err != nil {
			return err
		}

		row, err = q.UpdateEndpoint(ctx, sqlcgen.UpdateEndpointParams{
			ID:             row.ID,
			Url:            wanted.URL,
			Description:    wanted.Description,
			EventTypes:     postgres.Strings(wanted.EventTypes),
			Enabled:        wanted.Enabled,
			DisabledReason: wanted.DisabledReason,
			Reset:          wanted.ResetsFailures(&before),
		})
		if err != nil {
			return err
		}

		after = toEndpoint(&row)
		return changestore.InsertAudit(ctx, q, "webhook.update", id, before, after)
	})
	return after, err
}

func (s *Store) Delete(ctx context.Context, id webhook.ID) error {
	return s.tx(ctx, "delete endpoint", func(q *sqlcgen.Queries) error {
		row, err := q.LockEndpoint(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("lock endpoint", err, webhook.ErrNotFound)
		}
		if err := q.DeleteEndpoint(ctx, row.ID); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "webhook.delete", id, toEndpoint(&row), nil)
	})
}

func (s *Store) Rotate(ctx context.Context, id webhook.ID, secret webhook.Secret, overlap time.Duration) (kept webhook.Secret, err error) {
	err = s.tx(ctx, "rotate secret", func(q *sqlcgen.Queries) error {
		if _, err := q.LockEndpoint(ctx, ident.UUID(id)); err != nil {
			return postgres.NotFoundAs("lock endpoint", err, webhook.ErrNotFound)
		}

		found, err := q.GetWebhookSecret(ctx, sqlcgen.GetWebhookSecretParams{ID: secret.ID, EndpointID: ident.UUID(id)})
		if err == nil || !errors.Is(err, pgx.ErrNoRows) {
			kept = toWebhookSecret(&found)
			return err
		}

		kept = secret
		if err := insertSecret(ctx, q, id, secret); err != nil {
			return err
		}

		if err := q.ExpireWebhookSecrets(ctx, sqlcgen.ExpireWebhookSecretsParams{
			EndpointID: ident.UUID(id), Keep: secret.ID, OverlapSeconds: overlap.Seconds(),
		}); err != nil {
			return err
		}

		after := map[string]any{"overlap_seconds": int64(overlap.Seconds())}
		return changestore.InsertAudit(ctx, q, "webhook.rotate_secret", id, nil, after)
	})
	return kept, err
}

func (s *Store) Alerts(ctx context.Context, id account.ID) (webhook.Alerts, error) {
	return readAlerts(ctx, s.db.Queries(), id)
}

func readAlerts(ctx context.Context, q *sqlcgen.Queries, id account.ID) (webhook.Alerts, error) {
	row, err := q.AccountAlerts(ctx, ident.UUID(id))
	if err != nil {
		return webhook.Alerts{}, postgres.NotFoundAs("get alerts", err, account.ErrNotFound)
	}
	return webhook.Alerts{LowBalance: (*money.Nano)(row.LowBalanceThreshold), LimitPercent: int(row.LimitAlertPercent)}, nil
}

func (s *Store) SetAlerts(ctx context.Context, id account.ID, a webhook.Alerts) error {
	return s.tx(ctx, "set alerts", func(q *sqlcgen.Queries) error {
		pools, err := q.LockAlertPools(ctx, ident.UUID(id))
		if err != nil {
			return err
		}

		before, err := readAlerts(ctx, q, id)
		if err != nil {
			return err
		}

		if err := q.SetAlerts(ctx, sqlcgen.SetAlertsParams{
			Ids: pools, LowBalanceThreshold: (*int64)(a.LowBalance), LimitAlertPercent: int16(a.LimitPercent),
		}); err != nil {
			return err
		}

		stored, err := leasestore.LoadPools(ctx, q, pools, nil)
		if err != nil {
			return err
		}
		if err := leasestore.UpdateAlarms(ctx, q, stored.AlarmPools...); err != nil {
			return err
		}

		return changestore.InsertAudit(ctx, q, "account.alerts", id, before, a)
	})
}

func toEndpoint(row *sqlcgen.WebhookEndpoint) webhook.Endpoint {
	e := webhook.Endpoint{
		ID:             webhook.ID(row.ID),
		URL:            row.Url,
		Description:    row.Description,
		Enabled:        row.Enabled,
		DisabledReason: row.DisabledReason,
		FailingSince:   row.FailingSince,
		CreatedAt:      row.CreatedAt,
		UpdatedAt:      row.UpdatedAt,
	}
	for _, t := range row.EventTypes {
		e.EventTypes = append(e.EventTypes, webhook.Type(t))
	}
	return e
}

func toWebhookSecret(row *sqlcgen.WebhookSecret) webhook.Secret {
	return webhook.Secret{ID: row.ID, Sealed: vault.Sealed{Text: row.Sealed, KeyID: row.CipherKeyID}}
}
