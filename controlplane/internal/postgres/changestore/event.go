package changestore

import (
	"context"
	"encoding/json"
	"fmt"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/webhook"
	"modelgateway/shared/ident"
)

// InsertEvents writes events in the transaction of their cause. It omits events whose
// deduplication key is stored already.
func InsertEvents(ctx context.Context, q *sqlcgen.Queries, events ...webhook.Event) error {
	var arg sqlcgen.InsertEventsParams
	for i := range events {
		if exists, err := isStored(ctx, q, &events[i]); err != nil {
			return err
		} else if exists {
			continue
		}
		if err := appendEvent(&arg, &events[i]); err != nil {
			return err
		}
	}

	if len(arg.Ids) == 0 {
		return nil
	}
	if err := q.InsertEvents(ctx, arg); err != nil {
		return fmt.Errorf("write events: %w", err)
	}

	return nil
}

// isStored reports whether an event with the same deduplication key is stored. It
// is called before the insert, so that transactions do not wait for one another at
// the unique key.
func isStored(ctx context.Context, q *sqlcgen.Queries, e *webhook.Event) (bool, error) {
	if e.Once == "" {
		return false, nil
	}
	exists, err := q.EventExists(ctx, e.Once)
	if err != nil {
		return false, fmt.Errorf("find event: %w", err)
	}
	return exists, nil
}

func appendEvent(arg *sqlcgen.InsertEventsParams, e *webhook.Event) error {
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
	return nil
}
