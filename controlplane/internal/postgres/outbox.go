package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
	err := s.wait(waiting)
	if waiting.Err() != nil && ctx.Err() == nil {
		return nil // the time is over
	}
	return Translate("wait for outbox", err)
}

func (s OutboxStore) wait(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err //nolint:wrapcheck // Wait translates
	}
	defer release(conn)
	if _, err := conn.Exec(ctx, "listen mgw_outbox"); err != nil {
		return err //nolint:wrapcheck // Wait translates
	}
	// What was committed before listening began is not notified.
	filled, err := sqlcgen.New(conn).OutboxFilled(ctx)
	if err != nil || filled {
		return err
	}
	_, err = conn.Conn().WaitForNotification(ctx)
	return err //nolint:wrapcheck // Wait translates
}

// release gives a connection back that listens no more; one that cannot be
// told so is closed.
func release(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "unlisten *"); err != nil {
		_ = conn.Conn().Close(ctx) // the pool replaces it
	}
	conn.Release()
}
