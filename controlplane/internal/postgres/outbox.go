package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	bus "modelgateway/shared/catalog"
	"modelgateway/shared/subject"
)

const (
	// headVersion is the version of the head entry that this build writes.
	headVersion = 1
	// outboxBatch is how many messages are published in one transaction.
	outboxBatch = 256
)

// writeOutbox lays entries out to be published, the head last, and wakes the
// publisher when the transaction commits.
func writeOutbox(ctx context.Context, q *sqlcgen.Queries, rev int64, entries []catalog.Entry) error {
	head, err := json.Marshal(bus.Head{V: headVersion, Rev: rev})
	if err != nil {
		return fmt.Errorf("encode head: %w", err)
	}
	for _, e := range append(entries, catalog.Entry{Subject: subject.CatalogHead, Payload: head}) {
		if err := q.InsertOutbox(ctx, sqlcgen.InsertOutboxParams{Subject: e.Subject, Payload: e.Payload}); err != nil {
			return err
		}
	}
	return q.WakeOutbox(ctx)
}

// OutboxStore keeps what is to be published; it implements outbox.Store.
type OutboxStore struct{ *DB }

// Drain implements outbox.Store.
func (s OutboxStore) Drain(
	ctx context.Context, publish func(context.Context, []catalog.Entry) error,
) (found int, leads bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if leads, err = q.TryLockOutbox(ctx); err != nil || !leads {
			return Translate("lock outbox", err)
		}
		rows, err := q.OldestOutbox(ctx, outboxBatch)
		if err != nil {
			return Translate("read outbox", err)
		}
		found = len(rows)
		entries := make([]catalog.Entry, found)
		for i, row := range rows {
			entries[i] = catalog.Entry{Subject: row.Subject, Payload: row.Payload}
		}
		if err := publish(ctx, entries); err != nil || found == 0 {
			return err
		}
		return Translate("clear outbox", q.RemoveOutbox(ctx, rows[found-1].ID))
	})
	return found, leads, err
}

// Age implements outbox.Store.
func (s OutboxStore) Age(ctx context.Context) (time.Duration, error) {
	seconds, err := s.q.OutboxAge(ctx)
	return time.Duration(seconds * float64(time.Second)), Translate("read outbox age", err)
}

// Wait implements outbox.Store. It holds a connection while it waits.
func (s OutboxStore) Wait(ctx context.Context, atMost time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	conn, err := s.pool.Acquire(waiting)
	if err != nil {
		return Translate("wait for outbox", err)
	}
	defer conn.Release()
	if _, err := conn.Exec(waiting, "listen mgw_outbox"); err != nil {
		return Translate("listen to outbox", err)
	}
	// What was committed before listening began is not notified.
	filled, err := sqlcgen.New(conn).OutboxFilled(waiting)
	if err == nil && !filled {
		_, err = conn.Conn().WaitForNotification(waiting)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return Translate("wait for outbox", err)
	}
	_, err = conn.Exec(ctx, "unlisten mgw_outbox")
	return Translate("stop listening to outbox", err)
}
