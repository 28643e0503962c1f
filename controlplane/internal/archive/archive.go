// Package archive removes old data from the database: whole months of usage records, and old
// entries of the audit log.
//
// A month is removed in three steps. Each is recorded in the database, so that any replica can
// continue. First the month is closed: from then on no usage is settled in it, and late usage events
// are quarantined, because the primary key that detects duplicates will be dropped. Then it is
// exported: by this package to a file, or by an operator who confirms it. Last it is dropped, when
// the ledger check has included all its records. Totals, statements and the ledger are kept.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/money"
)

// The errors of this package.
var (
	// ErrNotClosed is returned for a month that is not closed: an export of it may not be complete.
	ErrNotClosed = errors.New("archive: the month is not closed")
	// ErrDiffers is returned if an export does not contain what the month contained when it was closed.
	ErrDiffers = errors.New("archive: the export differs from the month")
)

// Month is a closed month of usage. A zero time means that the step has not happened.
type Month struct {
	// Month is its first instant, in UTC.
	Month    time.Time
	ClosedAt time.Time
	// Records and Cost are the totals at the time of closing.
	Records    int64
	Cost       money.Nano
	ExportedAt time.Time
	// ExportedBy is the actor that confirmed the export, or "system"; File and SHA256 describe the file if this
	// program wrote it.
	ExportedBy string
	File       string
	SHA256     []byte
	DroppedAt  time.Time
}

// end returns the first instant after the month.
func (m *Month) end() time.Time { return m.Month.AddDate(0, 1, 0) }

// Store stores months and the audit log. Each method is one transaction.
type Store interface {
	// RunExclusively runs fn, unless another replica is running it; then it does nothing.
	RunExclusively(ctx context.Context, fn func(context.Context) error) error
	// Now returns the store's time, since a wrong clock of a replica must not close a month.
	Now(ctx context.Context) (time.Time, error)
	// CloseBefore closes every month that ended at or before a time.
	CloseBefore(ctx context.Context, end time.Time) error
	// Months returns the closed months, oldest first.
	Months(ctx context.Context) ([]Month, error)
	// MarkExported records that a month was exported, or returns ErrNotClosed. An exported month stays unchanged.
	MarkExported(ctx context.Context, m Month) error
	// Drop drops an exported month. It returns false if the ledger check has not included it yet.
	Drop(ctx context.Context, month time.Time) (bool, error)
	// AuditBefore returns entries with an id above after, up to the last one before the first entry at or after the
	// time.
	AuditBefore(ctx context.Context, before time.Time, after int64, limit int) ([]audit.Entry, error)
	// RemoveAudit records the file and deletes its entries: those up to an id.
	RemoveAudit(ctx context.Context, upto, entries int64, file string, sha256 []byte) error
}

// Config holds the dependencies and settings of a Service.
type Config struct {
	Store Store
	// ReadFunc is usage.Service.Export.
	ReadFunc func(ctx context.Context, q usage.Query) ([]usage.Record, error)
	Log      *slog.Logger
	// Dir is the directory for files; empty writes none.
	Dir string
	// UsageRetentionMonths is the number of whole months of usage to keep, AuditMonths the same for the audit log; zero keeps
	// all.
	UsageRetentionMonths int
	AuditRetentionMonths int
}

// Service applies the retention policy.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg} }

// Months returns the closed months.
func (s *Service) Months(ctx context.Context) ([]Month, error) { return s.cfg.Store.Months(ctx) }

// MarkExported records that an operator has exported a closed month.
func (s *Service) MarkExported(ctx context.Context, month time.Time) error {
	return s.cfg.Store.MarkExported(ctx, Month{Month: month, ExportedBy: audit.By(ctx).Name})
}

// Run executes the steps that are due. Only one replica runs at a time.
func (s *Service) Run(ctx context.Context) error {
	if s.cfg.UsageRetentionMonths <= 0 && s.cfg.AuditRetentionMonths <= 0 {
		return nil
	}
	return s.cfg.Store.RunExclusively(ctx, func(ctx context.Context) error {
		now, err := s.cfg.Store.Now(ctx)
		if err != nil {
			return err
		}
		return errors.Join(
			s.runUsage(ctx, keptFrom(now, s.cfg.UsageRetentionMonths)),
			s.runAudit(ctx, keptFrom(now, s.cfg.AuditRetentionMonths)),
		)
	})
}

// keptFrom returns the first instant to keep.
func keptFrom(now time.Time, months int) time.Time {
	now = now.UTC()
	return time.Date(now.Year(), now.Month()-time.Month(months), 1, 0, 0, 0, 0, time.UTC)
}

func (s *Service) runUsage(ctx context.Context, from time.Time) error {
	if s.cfg.UsageRetentionMonths <= 0 {
		return nil
	}
	if err := s.cfg.Store.CloseBefore(ctx, from); err != nil {
		return fmt.Errorf("close months: %w", err)
	}

	months, err := s.cfg.Store.Months(ctx)
	if err != nil {
		return err
	}

	for i := range months {
		if err := s.advance(ctx, &months[i]); err != nil {
			return fmt.Errorf("month %s: %w", months[i].Month.Format("2006-01"), err)
		}
	}

	return nil
}

// advance executes all steps of a closed month that are possible now.
func (s *Service) advance(ctx context.Context, m *Month) error {
	if !m.DroppedAt.IsZero() {
		return nil
	}

	if m.ExportedAt.IsZero() {
		if s.cfg.Dir == "" {
			return nil // an operator has to confirm the export
		}
		if err := s.export(ctx, m); err != nil {
			return err
		}
	}

	dropped, err := s.cfg.Store.Drop(ctx, m.Month)
	if err != nil {
		return fmt.Errorf("drop: %w", err)
	}
	if !dropped {
		return nil // a later run will drop it
	}

	s.cfg.Log.InfoContext(ctx, "month of usage dropped", "month", m.Month.Format("2006-01"), "records", m.Records, "file", m.File)
	return nil
}

// page is the number of rows that are read at a time.
const page = 1000

// export writes a month to a file and compares its content with the totals of the month.
func (s *Service) export(ctx context.Context, m *Month) error {
	var records int64
	var cost money.Nano
	name := "usage-" + m.Month.Format("2006-01") + ".ndjson.gz"
	sum, err := write(s.cfg.Dir, name, func(line func([]byte) error) error {
		q := usage.Query{From: m.Month, To: m.end(), Limit: page}
		for {
			found, err := s.cfg.ReadFunc(ctx, q)
			if err != nil {
				return err
			}

			for i := range found {
				records++
				cost += found[i].Cost
				text, err := EncodeUsage(&found[i])
				if err == nil {
					err = line(text)
				}
				if err != nil {
					return err
				}
			}

			if len(found) < page {
				break
			}

			q.After = found[len(found)-1].RequestID
		}

		if records != m.Records || cost != m.Cost {
			return fmt.Errorf("%w: %d records of %s against %d of %s", ErrDiffers, records, cost, m.Records, m.Cost)
		}

		return nil
	})
	if err != nil {
		return err
	}

	m.ExportedBy, m.File, m.SHA256 = audit.By(ctx).Name, name, sum
	return s.cfg.Store.MarkExported(ctx, *m)
}
