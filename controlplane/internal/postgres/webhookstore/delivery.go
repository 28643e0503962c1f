package webhookstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

func (s *Store) FanOut(ctx context.Context, limit int, body func(*webhook.Event, *webhook.Subject) ([]byte, error)) (found int, err error) {
	err = s.tx(ctx, "create deliveries", func(q *sqlcgen.Queries) error {
		rows, err := q.LockNewEvents(ctx, int32(limit))
		if found = len(rows); err != nil || found == 0 {
			return err
		}

		ids := make([]ident.UUID, len(rows))
		for i := range rows {
			ids[i] = rows[i].ID
		}

		subjects, err := readSubjects(ctx, q, ids)
		if err != nil {
			return err
		}

		for i := range rows {
			event, err := toEvent(&rows[i])
			if err != nil {
				return err
			}
			text, err := body(event, subjects[event.ID])
			if err != nil {
				return err
			}
			if err := q.SetEventBody(ctx, sqlcgen.SetEventBodyParams{ID: event.ID, Body: text}); err != nil {
				return err
			}
		}

		return q.InsertDeliveries(ctx, ids)
	})
	return found, err
}

func readSubjects(ctx context.Context, q *sqlcgen.Queries, ids []ident.UUID) (map[ident.UUID]*webhook.Subject, error) {
	currency, err := catalogstore.ReadCurrency(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("read currency: %w", err)
	}

	rows, err := q.EventSubjects(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read subjects: %w", err)
	}

	subjects := make(map[ident.UUID]*webhook.Subject, len(rows))
	for _, r := range rows {
		subjects[r.ID] = &webhook.Subject{
			Currency:          currency,
			AccountExternalID: r.AccountExternalID,
			KeyExternalID:     r.KeyExternalID,
			KeyName:           r.KeyName,
			Hour:              money.Nano(r.Hour),
			Day:               money.Nano(r.Day),
		}
	}

	return subjects, nil
}

func toEvent(row *sqlcgen.WebhookEvent) (*webhook.Event, error) {
	e := &webhook.Event{
		ID:        row.ID,
		Type:      webhook.Type(row.Type),
		AccountID: postgres.Deref(row.AccountID),
		KeyID:     postgres.Deref(row.KeyID),
		At:        row.CreatedAt,
	}
	if err := json.Unmarshal(row.Facts, &e.Facts); err != nil {
		return nil, fmt.Errorf("read facts of event %s: %w", ident.Event.Format(row.ID), err)
	}
	return e, nil
}

func (s *Store) Claim(ctx context.Context, limit, perEndpoint int, duration time.Duration) (claims []webhook.Claim, err error) {
	err = s.tx(ctx, "claim deliveries", func(q *sqlcgen.Queries) error {
		rows, err := q.ClaimDeliveries(ctx, sqlcgen.ClaimDeliveriesParams{
			RowLimit: int32(limit), PerEndpoint: int64(perEndpoint), ClaimSeconds: duration.Seconds(),
		})
		if err != nil || len(rows) == 0 {
			claims = nil
			return err
		}

		endpoints := make([]ident.UUID, len(rows))
		for i := range rows {
			endpoints[i] = rows[i].EndpointID
		}

		found, err := q.SecretsOfEndpoints(ctx, endpoints)
		if err != nil {
			return err
		}

		secrets := map[ident.UUID][]webhook.Secret{}
		for i := range found {
			secrets[found[i].EndpointID] = append(secrets[found[i].EndpointID], toWebhookSecret(&found[i]))
		}

		claims = make([]webhook.Claim, len(rows))
		for i, r := range rows {
			claims[i] = webhook.Claim{
				Delivery:   webhook.DeliveryID(r.ID),
				Number:     r.ClaimNumber,
				Round:      int(r.AttemptsSinceRequest),
				Endpoint:   webhook.ID(r.EndpointID),
				URL:        r.Url,
				EventID:    r.EventID,
				Body:       r.Body,
				Failures:   int(r.Failures),
				FailingFor: postgres.Seconds(r.FailingSeconds),
				Secrets:    secrets[r.EndpointID],
			}
		}

		return nil
	})
	return claims, err
}

func (s *Store) Conclude(ctx context.Context, o *webhook.Outcome) error {
	return s.tx(ctx, "finish delivery", func(q *sqlcgen.Queries) error {
		n, err := q.FinishDelivery(ctx, sqlcgen.FinishDeliveryParams{
			ID:           ident.UUID(o.Claim.Delivery),
			ClaimNumber:  o.Claim.Number,
			State:        string(o.State),
			PauseSeconds: o.Pause.Seconds(),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // another replica has claimed it, or the endpoint was deleted
		}
		if err != nil {
			return err
		}

		a := &o.Attempt
		if err := q.InsertAttempt(ctx, sqlcgen.InsertAttemptParams{
			DeliveryID: ident.UUID(o.Claim.Delivery),
			Number:     n,
			StartedAt:  a.At,
			Status:     int32(a.Status),
			LatencyMs:  a.Latency.Milliseconds(),
			Error:      string(a.Error),
			Excerpt:    a.Excerpt,
		}); err != nil {
			return err
		}

		if a.Error == "" {
			return q.ResetEndpointFailures(ctx, ident.UUID(o.Claim.Endpoint))
		}

		return endpointFailed(ctx, q, o)
	})
}

func endpointFailed(ctx context.Context, q *sqlcgen.Queries, o *webhook.Outcome) error {
	id := ident.UUID(o.Claim.Endpoint)
	if err := q.CountEndpointFailure(ctx, sqlcgen.CountEndpointFailureParams{ID: id, PauseSeconds: o.Backoff.Seconds()}); err != nil {
		return err
	}
	if o.Disable == "" {
		return nil
	}

	row, err := q.DisableEndpoint(ctx, sqlcgen.DisableEndpointParams{ID: id, Reason: o.Disable})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the endpoint is disabled already
	}
	if err != nil {
		return err
	}

	after := toEndpoint(&row)
	before := after
	before.Enabled, before.DisabledReason = true, ""
	return changestore.InsertAudit(ctx, q, "webhook.disable", after.ID, before, after)
}

func (s *Store) Release(ctx context.Context, c *webhook.Claim) error {
	return postgres.Translate(
		"release delivery",
		s.db.Queries().ReleaseDelivery(ctx, sqlcgen.ReleaseDeliveryParams{ID: ident.UUID(c.Delivery), ClaimNumber: c.Number}),
	)
}

func (s *Store) Backlog(ctx context.Context) (webhook.Backlog, error) {
	row, err := s.db.Queries().Backlog(ctx)
	if err != nil {
		return webhook.Backlog{}, postgres.Translate("read backlog", err)
	}
	b := webhook.Backlog{
		Pending:   row.Waiting,
		Oldest:    time.Duration(row.OldestSeconds * float64(time.Second)),
		Endpoints: map[string]int64{},
	}
	states, err := s.db.Queries().CountEndpoints(ctx)
	for _, state := range states {
		b.Endpoints[state.State] = state.Endpoints
	}
	return b, postgres.Translate("count endpoints", err)
}

func (s *Store) Expire(ctx context.Context, age time.Duration) (int64, error) {
	n, err := s.db.Queries().ExpireEvents(ctx, age.Seconds())
	return n, postgres.Translate("expire events", err)
}

func (s *Store) Deliveries(ctx context.Context, query webhook.DeliveryQuery) ([]webhook.Delivery, error) {
	rows, err := s.db.Queries().ListDeliveries(ctx, sqlcgen.ListDeliveriesParams{
		EndpointID: ident.UUID(query.EndpointID),
		State:      string(query.State),
		FirstPage:  query.Before == webhook.DeliveryID{},
		Before:     ident.UUID(query.Before),
		RowLimit:   int32(query.Limit),
	})
	deliveries := make([]webhook.Delivery, len(rows))
	for i := range rows {
		deliveries[i] = withLast(&rows[i])
	}
	return deliveries, postgres.Translate("list deliveries", err)
}

// withLast returns a delivery with its newest attempt.
func withLast(r *sqlcgen.ListDeliveriesRow) webhook.Delivery {
	d := toDelivery(&sqlcgen.GetDeliveryRow{
		ID:            r.ID,
		EventID:       r.EventID,
		EndpointID:    r.EndpointID,
		State:         r.State,
		Attempts:      r.Attempts,
		NextAttemptAt: r.NextAttemptAt,
		CreatedAt:     r.CreatedAt,
		EndedAt:       r.EndedAt,
		Type:          r.Type,
	})
	if r.Number > 0 {
		last := toAttempt(&sqlcgen.WebhookAttempt{
			Number:    r.Number,
			StartedAt: r.StartedAt,
			Status:    r.Status,
			LatencyMs: r.LatencyMs,
			Error:     r.Error,
			Excerpt:   r.Excerpt,
		})
		d.Last = &last
	}

	return d
}

func (s *Store) Delivery(ctx context.Context, id webhook.DeliveryID) (webhook.Delivery, []webhook.Attempt, error) {
	row, err := s.db.Queries().GetDelivery(ctx, ident.UUID(id))
	if err != nil {
		return webhook.Delivery{}, nil, postgres.NotFoundAs("get delivery", err, webhook.ErrDeliveryNotFound)
	}
	rows, err := s.db.Queries().ListAttempts(ctx, ident.UUID(id))
	if err != nil {
		return webhook.Delivery{}, nil, postgres.Translate("list attempts", err)
	}
	d, attempts := toDelivery(&row), make([]webhook.Attempt, len(rows))
	for i := range rows {
		attempts[i] = toAttempt(&rows[i])
		d.Last = &attempts[i]
	}
	return d, attempts, nil
}

func (s *Store) Redeliver(ctx context.Context, id webhook.DeliveryID) (d webhook.Delivery, err error) {
	err = s.tx(ctx, "redeliver", func(q *sqlcgen.Queries) error {
		n, err := q.RedeliverOne(ctx, ident.UUID(id))
		if err != nil {
			return err
		}
		if n == 0 {
			return webhook.ErrDeliveryNotFound
		}
		row, err := q.GetDelivery(ctx, ident.UUID(id))
		if err != nil {
			return err
		}
		d = toDelivery(&row)
		return changestore.InsertAudit(ctx, q, "webhook.redeliver", d.EndpointID, nil, map[string]any{"delivery_id": id.String()})
	})
	return d, err
}

func (s *Store) RedeliverFailed(ctx context.Context, id webhook.ID, since time.Time) (n int64, err error) {
	err = s.tx(ctx, "redeliver failed", func(q *sqlcgen.Queries) error {
		if _, err := q.GetEndpoint(ctx, ident.UUID(id)); err != nil {
			return postgres.NotFoundAs("get endpoint", err, webhook.ErrNotFound)
		}
		if n, err = q.RedeliverFailed(ctx, sqlcgen.RedeliverFailedParams{EndpointID: ident.UUID(id), Since: since}); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "webhook.redeliver", id, nil, map[string]any{"since": since, "deliveries": n})
	})
	return n, err
}

func (s *Store) Test(ctx context.Context, endpoint webhook.ID, event ident.UUID) error {
	return s.tx(ctx, "write test event", func(q *sqlcgen.Queries) error {
		row, err := q.GetEndpoint(ctx, ident.UUID(endpoint))
		if err != nil {
			return postgres.NotFoundAs("get endpoint", err, webhook.ErrNotFound)
		}
		if err := q.InsertTestEvent(
			ctx,
			sqlcgen.InsertTestEventParams{ID: event, Type: string(webhook.Test), EndpointID: &row.ID},
		); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "webhook.test", endpoint, nil, map[string]any{"event_id": ident.Event.Format(event)})
	})
}

func toDelivery(row *sqlcgen.GetDeliveryRow) webhook.Delivery {
	d := webhook.Delivery{
		ID:         webhook.DeliveryID(row.ID),
		EndpointID: webhook.ID(row.EndpointID),
		EventID:    row.EventID,
		Type:       webhook.Type(row.Type),
		State:      webhook.State(row.State),
		Attempts:   int(row.Attempts),
		CreatedAt:  row.CreatedAt,
		EndedAt:    row.EndedAt,
		Body:       row.Body,
	}
	if d.State == webhook.Pending {
		d.NextAttemptAt = &row.NextAttemptAt
	}
	return d
}

func toAttempt(row *sqlcgen.WebhookAttempt) webhook.Attempt {
	return webhook.Attempt{
		N:       int(row.Number),
		At:      row.StartedAt,
		Status:  int(row.Status),
		Latency: time.Duration(row.LatencyMs) * time.Millisecond,
		Error:   webhook.Class(row.Error),
		Excerpt: row.Excerpt,
	}
}
