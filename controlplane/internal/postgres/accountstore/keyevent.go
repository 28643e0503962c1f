package accountstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
)

// expiryBatch is the number of keys of which a transaction reports the expiry.
const expiryBatch = 500

// createdEvents returns the events of the keys that a transaction of a revision has made.
func createdEvents(rev int64, made []key.Record) []webhook.Event {
	var events []webhook.Event
	for i := range made {
		if k := &made[i].Key; k.Rev == rev {
			events = append(events, keyEvent(webhook.Created, ident.UUID(k.AccountID), ident.UUID(k.ID), k.ExpiresAt))
		}
	}
	return events
}

// pauseEvents returns the event of a change that has paused or resumed a key.
func pauseEvents(before, after *key.Key) []webhook.Event {
	if before.Paused == after.Paused {
		return nil
	}
	e := keyEvent(webhook.Paused, ident.UUID(after.AccountID), ident.UUID(after.ID), after.ExpiresAt)
	if !after.Paused {
		e.Type = webhook.Resumed
	}
	return []webhook.Event{e}
}

func keyEvent(t webhook.Type, account, id ident.UUID, expires *time.Time) webhook.Event {
	return webhook.Event{
		Type:      t,
		AccountID: account,
		KeyID:     id,
		Facts:     webhook.Facts{ExpiresAt: expires},
	}
}

// ReportExpiries writes the events about keys that expire soon or have expired. After a pause of this job a key gets one
// event: that of the state in which it is.
func (s *Keys) ReportExpiries(ctx context.Context, now time.Time) error {
	for {
		found := 0
		err := s.db.InTx(ctx, func(tx pgx.Tx) error {
			q := sqlcgen.New(tx)
			rows, err := q.LockExpiringKeys(ctx, sqlcgen.LockExpiringKeysParams{Moment: now, RowLimit: expiryBatch})
			if err != nil {
				return err
			}

			found = len(rows)
			events := make([]webhook.Event, len(rows))
			for i := range rows {
				r := &rows[i]
				expires := r.ExpiresAt.UTC()
				events[i] = keyEvent(webhook.ExpiresSoon, r.AccountID, r.ID, &expires)
				if !expires.After(now) {
					events[i].Type = webhook.Expired
				}
				next := sqlcgen.SetExpiryEventParams{ID: r.ID, ExpiryEventAt: key.NextExpiryEvent(&expires, now)}
				if err := q.SetExpiryEvent(ctx, next); err != nil {
					return err
				}
			}

			return changestore.InsertEvents(ctx, q, events...)
		})
		if err != nil || found < expiryBatch {
			return postgres.Translate("report expiries of keys", err)
		}
	}
}
