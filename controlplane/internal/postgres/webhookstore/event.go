package webhookstore

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
)

func (s *Store) Events(ctx context.Context, query webhook.EventQuery) ([]webhook.Listed, error) {
	rows, err := s.events(ctx, &query)
	if err != nil {
		return nil, postgres.Translate("list events", err)
	}

	events, ids, index := make([]webhook.Listed, len(rows)), make([]ident.UUID, len(rows)), make(map[ident.UUID]int, len(rows))
	for i := range rows {
		r := &rows[i]
		ids[i], index[r.ID] = r.ID, i
		events[i] = webhook.Listed{Position: webhook.Position{At: r.CreatedAt, ID: r.ID}, Body: r.Body}
	}

	deliveries, err := s.db.Queries().DeliveriesOfEvents(ctx, ids)
	for i := range deliveries {
		e := &events[index[deliveries[i].EventID]]
		e.Deliveries = append(e.Deliveries, withLast((*sqlcgen.ListDeliveriesRow)(&deliveries[i])))
	}

	return events, postgres.Translate("list deliveries of events", err)
}

func (s *Store) events(ctx context.Context, query *webhook.EventQuery) ([]sqlcgen.WebhookEvent, error) {
	q := s.db.PlannedQueries()
	var of *ident.UUID
	if query.AccountID != (account.ID{}) {
		of = new(ident.UUID(query.AccountID))
	}

	if !query.OldestFirst {
		from := webhook.Position{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), ID: postgres.HighestID}
		if query.From != nil {
			from = *query.From
		}
		return q.ListEventsBefore(ctx, sqlcgen.ListEventsBeforeParams{
			BeforeTime: from.At,
			BeforeID:   from.ID,
			Type:       string(query.Type),
			AccountID:  of,
			RowLimit:   int32(query.Limit),
		})
	}

	// The horizon is read first: what is committed after it is later.
	horizon, err := q.EventHorizon(ctx)
	if err != nil {
		return nil, err
	}

	var from webhook.Position
	if query.From != nil {
		from = *query.From
	}

	return q.ListEventsAfter(ctx, sqlcgen.ListEventsAfterParams{
		AfterTime: from.At,
		AfterID:   from.ID,
		Horizon:   horizon,
		Type:      string(query.Type),
		AccountID: of,
		RowLimit:  int32(query.Limit),
	})
}
