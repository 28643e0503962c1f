package usagestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/money"
)

// Archive keeps the state of closed months.
type Archive struct{ db *postgres.DB }

// NewArchive returns a store that uses db.
func NewArchive(db *postgres.DB) *Archive { return &Archive{db} }

// RunExclusively implements archive.Store. It holds a lock that belongs to one connection.
func (s *Archive) RunExclusively(ctx context.Context, fn func(context.Context) error) error {
	conn, err := s.db.Pool().Acquire(ctx)
	if err != nil {
		return postgres.Translate("acquire a connection", err)
	}
	defer conn.Release()
	q := sqlcgen.New(conn)
	locked, err := q.TryLockArchive(ctx)
	if err != nil || !locked {
		return postgres.Translate("lock the archive", err)
	}
	err = fn(ctx)
	if _, failed := q.UnlockArchive(context.WithoutCancel(ctx)); failed != nil {
		_ = conn.Conn().Close(context.WithoutCancel(ctx)) // closing the connection releases the lock
	}
	return err
}

func (s *Archive) Now(ctx context.Context) (time.Time, error) {
	now, err := s.db.Queries().Now(ctx)
	return now, postgres.Translate("read the clock", err)
}

func (s *Archive) CloseBefore(ctx context.Context, end time.Time) error {
	span, err := s.db.Queries().UsageSpan(ctx)
	if err != nil {
		return postgres.Translate("read span of usage partitions", err)
	}

	lowest := span.Lowest.Time().UTC()
	first := time.Date(lowest.Year(), lowest.Month(), 1, 0, 0, 0, 0, time.UTC)
	for next := first; !next.AddDate(0, 1, 0).After(end); next = next.AddDate(0, 1, 0) {
		month := postgres.Day(next, pgtype.Finite)
		if err := s.inBriefLock(ctx, "close month", func(q *sqlcgen.Queries) error {
			closed, err := q.CloseUsageMonth(ctx, month)
			if err != nil || !closed {
				return err
			}
			return changestore.InsertAudit(ctx, q, "usage.close_month", monthName(next), nil, nil)
		}); err != nil {
			return err
		}
	}

	return nil
}

// inBriefLock runs a transaction that locks a table that settlement writes. All other
// users of the table wait while it waits for the lock, so it gives up soon; the next
// run tries again.
func (s *Archive) inBriefLock(ctx context.Context, operation string, fn func(q *sqlcgen.Queries) error) error {
	return postgres.Translate(operation, s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if err := q.WaitBrieflyForLocks(ctx); err != nil {
			return err
		}
		return fn(q)
	}))
}

// monthName is the object of audit entries about a month.
type monthName time.Time

// String returns a text such as "usage 2026-10".
func (m monthName) String() string { return "usage " + time.Time(m).Format("2006-01") }

func (s *Archive) Months(ctx context.Context) ([]archive.Month, error) {
	rows, err := s.db.Queries().UsageMonths(ctx)
	if err != nil {
		return nil, postgres.Translate("list months", err)
	}
	months := make([]archive.Month, len(rows))
	for i := range rows {
		months[i] = toMonth(&rows[i])
	}
	return months, nil
}

func toMonth(row *sqlcgen.UsageMonth) archive.Month {
	return archive.Month{
		Month:      row.Month.Time,
		ClosedAt:   row.ClosedAt,
		Records:    row.Records,
		Cost:       money.Nano(row.Cost),
		ExportedAt: postgres.Deref(row.ExportedAt),
		ExportedBy: row.ExportedBy,
		File:       row.File,
		SHA256:     row.Sha256,
		DroppedAt:  postgres.Deref(row.DroppedAt),
	}
}

func (s *Archive) MarkExported(ctx context.Context, m archive.Month) error {
	month := postgres.Day(m.Month, pgtype.Finite)
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, err := q.LockUsageMonth(ctx, month)
		if errors.Is(err, pgx.ErrNoRows) {
			return archive.ErrNotClosed
		}
		if err != nil || row.ExportedAt != nil {
			return postgres.Translate("lock month", err)
		}

		if err := q.MarkMonthExported(ctx, sqlcgen.MarkMonthExportedParams{
			Month:      month,
			ExportedBy: m.ExportedBy,
			File:       m.File,
			Sha256:     m.SHA256,
		}); err != nil {
			return postgres.Translate("mark month", err)
		}

		after := map[string]any{"records": row.Records, "file": m.File}
		err = changestore.InsertAudit(ctx, q, "usage.export_month", monthName(m.Month), nil, after)
		return postgres.Translate("write audit entry", err)
	})
}

// Drop implements archive.Store. Its lock prevents the ledger check from adding to the
// stored sums meanwhile.
func (s *Archive) Drop(ctx context.Context, month time.Time) (dropped bool, err error) {
	err = s.inBriefLock(ctx, "drop month", func(q *sqlcgen.Queries) error {
		dropped = false
		if locked, err := q.TryLockLedgerCheck(ctx); err != nil || !locked {
			return err
		}
		if dropped, err = q.DropUsageMonth(ctx, postgres.Day(month, pgtype.Finite)); err != nil || !dropped {
			return err
		}
		return changestore.InsertAudit(ctx, q, "usage.drop_month", monthName(month), nil, nil)
	})
	return dropped && err == nil, err
}

func (s *Archive) AuditBefore(ctx context.Context, before time.Time, after int64, limit int) ([]audit.Entry, error) {
	rows, err := s.db.Queries().AuditBefore(ctx, sqlcgen.AuditBeforeParams{AfterID: after, BeforeMoment: before, RowLimit: int32(limit)})
	entries := make([]audit.Entry, len(rows))
	for i := range rows {
		row := &rows[i]
		entries[i] = audit.Entry{
			ID:        row.ID,
			At:        row.CreatedAt,
			Actor:     row.Actor,
			Action:    row.Action,
			Object:    row.Object,
			Before:    row.Before,
			After:     row.After,
			RequestID: row.RequestID,
		}
	}

	return entries, postgres.Translate("read audit log", err)
}

func (s *Archive) RemoveAudit(ctx context.Context, lastID, entries int64, file string, sha256 []byte) error {
	return postgres.Translate("remove audit entries", s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if err := q.InsertAuditArchive(ctx, sqlcgen.InsertAuditArchiveParams{
			LastID:  lastID,
			Entries: entries,
			File:    file,
			Sha256:  sha256,
		}); err != nil {
			return err
		}
		removed, err := q.RemoveAudit(ctx, lastID)
		if err == nil && removed != entries {
			err = fmt.Errorf("%d entries are in the file, %d in the log", entries, removed)
		}
		return err
	}))
}
