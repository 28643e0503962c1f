package catalogstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
)

// outboxBatch bounds the entries that are published in one transaction.
const outboxBatch = 256

// Outbox keeps unpublished entries.
type Outbox struct{ db *postgres.DB }

// NewOutbox returns a store that uses db.
func NewOutbox(db *postgres.DB) *Outbox { return &Outbox{db} }

func (s *Outbox) Drain(
	ctx context.Context, publish func(context.Context, []catalog.Entry) error,
) (found int, leads bool, err error) {
	err = pgx.BeginFunc(ctx, s.db.Pool(), func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if leads, err = q.TryLockOutbox(ctx); err != nil || !leads {
			return postgres.Translate("lock outbox", err)
		}

		rows, err := q.OldestOutbox(ctx, outboxBatch)
		if err != nil {
			return postgres.Translate("read outbox", err)
		}

		found = len(rows)
		entries := make([]catalog.Entry, found)
		for i, row := range rows {
			entries[i] = catalog.Entry{Subject: row.Subject, Payload: row.Payload}
		}

		if err := publish(ctx, entries); err != nil || found == 0 {
			return err
		}

		return postgres.Translate("clear outbox", q.RemoveOutbox(ctx, rows[found-1].ID))
	})
	return found, leads, err
}

func (s *Outbox) Age(ctx context.Context) (time.Duration, error) {
	seconds, err := s.db.Queries().OutboxAge(ctx)
	return time.Duration(seconds * float64(time.Second)), postgres.Translate("read outbox age", err)
}

// Wait implements outbox.Store. It holds a connection while it waits.
func (s *Outbox) Wait(ctx context.Context, atMost time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	err := s.wait(waiting)
	if waiting.Err() != nil && ctx.Err() == nil {
		return nil // nothing was written in time
	}
	return postgres.Translate("wait for outbox", err)
}

func (s *Outbox) wait(ctx context.Context) error {
	conn, err := s.db.Pool().Acquire(ctx)
	if err != nil {
		return err //nolint:wrapcheck // Wait translates
	}
	defer release(conn)
	if _, err := conn.Exec(ctx, "listen mgw_outbox"); err != nil {
		return err //nolint:wrapcheck // Wait translates
	}
	// Postgres sends no notification for rows that were committed before LISTEN.
	filled, err := sqlcgen.New(conn).OutboxHasRows(ctx)
	if err != nil || filled {
		return err
	}
	_, err = conn.Conn().WaitForNotification(ctx)
	return err //nolint:wrapcheck // Wait translates
}

// release ends LISTEN and releases the connection. If that fails, it closes the
// connection.
func release(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "unlisten *"); err != nil {
		_ = conn.Conn().Close(ctx) // the pool replaces it
	}
	conn.Release()
}
