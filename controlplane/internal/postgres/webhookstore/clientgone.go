package webhookstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
)

// ReportClientsGone writes an event for each account whose clients have left an unusual share of its requests of a day
// (UTC) before the end of the answer, once a day. A client that leaves pays what was made; many that leave are a program
// with a time limit that is too short, or somebody who tries to pay less.
func (s *Store) ReportClientsGone(ctx context.Context, day time.Time) error {
	return s.tx(ctx, "report clients that left", func(q *sqlcgen.Queries) error {
		accounts, err := q.ClientsGone(ctx, pgtype.Date{Time: day.UTC(), Valid: true})
		if err != nil {
			return err
		}

		var events []webhook.Event
		for _, a := range accounts {
			if webhook.IsClientGoneUnusual(a.ClientGone, a.Requests) {
				events = append(events, webhook.ClientGoneEvent(a.AccountID, a.ClientGone, a.Requests, day))
			}
		}

		return changestore.InsertEvents(ctx, q, events...)
	})
}
