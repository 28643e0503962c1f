// Package eventstore writes webhook events in the transaction of their cause.
package eventstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
)

// emit writes events in the transaction of their cause.
func Insert(ctx context.Context, q *sqlcgen.Queries, events ...webhook.Event) error {
	if len(events) == 0 {
		return nil
	}
	var arg sqlcgen.InsertEventsParams
	for i := range events {
		e := &events[i]
		facts, err := json.Marshal(&e.Facts)
		if err != nil {
			return fmt.Errorf("encode facts of %s: %w", e.Type, err)
		}
		arg.Ids = append(arg.Ids, ident.New())
		arg.Types = append(arg.Types, string(e.Type))
		arg.AccountIds = append(arg.AccountIds, e.AccountID)
		arg.KeyIds = append(arg.KeyIds, e.KeyID)
		arg.Facts = append(arg.Facts, facts)
		arg.DeduplicationKeys = append(arg.DeduplicationKeys, e.Once)
	}
	if err := q.InsertEvents(ctx, arg); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// emitHourly writes an event for the operator, at most one of its type and
// subject in an hour: what goes wrong all the time is not news every time.
func InsertHourly(ctx context.Context, q *sqlcgen.Queries, e webhook.Event, subject string) error {
	e.Once = fmt.Sprintf("%s %s", e.Type, time.Now().UTC().Format("2006-01-02T15"))
	if subject != "" {
		e.Once += " " + subject
	}
	// Looked at first, so that transactions do not wait for one another at the unique name.
	if written, err := q.EventExists(ctx, e.Once); err != nil || written {
		return err
	}
	return Insert(ctx, q, e)
}
