// Package archive owns what leaves the database for good: whole months of
// usage records, and old entries of the audit log.
//
// A month goes in three steps, each kept in the database, so that any replica
// goes on where another has stopped. It is closed: from then on nothing is
// settled into it, and what still comes goes into quarantine, since the primary
// key that tells repeated events would be gone. It is exported, to a file or by
// an operator's word. Only then is it dropped, when the self-check has taken in
// all that came of it. Totals, statements and the ledger are not touched.
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
	// ErrNotClosed is returned for a month that is not closed, so that no export of it can be the last.
	ErrNotClosed = errors.New("archive: the month is not closed")
	// ErrDiffers is returned when an export does not hold what its month held when it was closed.
	ErrDiffers = errors.New("archive: the export differs from the month")
)

// Month is a closed month of usage. Zero times are of what has not happened.
type Month struct {
	// Month is its first moment, in UTC.
	Month    time.Time
	ClosedAt time.Time
	// Records and Cost are what it held when it was closed.
	Records    int64
	Cost       money.Nano
	ExportedAt time.Time
	// ExportedBy is the token that has said so, or "system"; File and SHA256 are of the file, if it was this program that wrote it.
	ExportedBy string
	File       string
	SHA256     []byte
	DroppedAt  time.Time
}

// end is the first moment behind the month.
func (m *Month) end() time.Time { return m.Month.AddDate(0, 1, 0) }

// Store keeps months and the audit log. Each method is one transaction.
type Store interface {
	// Alone runs fn unless another replica does so; then it does nothing.
	Alone(ctx context.Context, fn func(context.Context) error) error
	// Now is the store's time: a clock of this replica that is wrong must not close a month.
	Now(ctx context.Context) (time.Time, error)
	// CloseBefore closes every month that ended by a time.
	CloseBefore(ctx context.Context, end time.Time) error
	// Months returns the closed months, oldest first.
	Months(ctx context.Context) ([]Month, error)
	// MarkExported notes that a month was exported. It is ErrNotClosed for one that is not closed; one that is exported already stays as it is.
	MarkExported(ctx context.Context, m Month) error
	// Drop drops an exported month; false if the self-check has yet to take it in.
	Drop(ctx context.Context, month time.Time) (bool, error)
	// AuditBefore returns entries with an id above after of a log that ends before any entry of the time or later.
	AuditBefore(ctx context.Context, before time.Time, after int64, limit int) ([]audit.Entry, error)
	// RemoveAudit notes the file and removes what is in it: the entries up to an id.
	RemoveAudit(ctx context.Context, upto, entries int64, file string, sha256 []byte) error
}

// Config is what a Service is made of.
type Config struct {
	Store Store
	// ReadFunc reads records, as usage.Service.Export does.
	ReadFunc func(ctx context.Context, q usage.ExportQuery) ([]usage.Record, error)
	Log      *slog.Logger
	// Dir is where files go; empty writes none.
	Dir string
	// UsageMonths is how many whole months of usage are kept beside the running one, AuditMonths the same of the audit
	// log; zero keeps all for ever.
	UsageMonths int
	AuditMonths int
}

// Service applies the policy.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg} }

// Months returns the closed months.
func (s *Service) Months(ctx context.Context) ([]Month, error) { return s.cfg.Store.Months(ctx) }

// MarkExported takes an operator's word that a closed month is kept elsewhere.
func (s *Service) MarkExported(ctx context.Context, month time.Time) error {
	return s.cfg.Store.MarkExported(ctx, Month{Month: month, ExportedBy: audit.By(ctx).Name})
}

// Run does what is due. Replicas take turns.
func (s *Service) Run(ctx context.Context) error {
	if s.cfg.UsageMonths <= 0 && s.cfg.AuditMonths <= 0 {
		return nil
	}
	return s.cfg.Store.Alone(ctx, func(ctx context.Context) error {
		now, err := s.cfg.Store.Now(ctx)
		if err != nil {
			return err
		}
		return errors.Join(s.runUsage(ctx, keptFrom(now, s.cfg.UsageMonths)), s.runAudit(ctx, keptFrom(now, s.cfg.AuditMonths)))
	})
}

// keptFrom is the first moment of what is kept.
func keptFrom(now time.Time, months int) time.Time {
	now = now.UTC()
	return time.Date(now.Year(), now.Month()-time.Month(months), 1, 0, 0, 0, 0, time.UTC)
}

func (s *Service) runUsage(ctx context.Context, from time.Time) error {
	if s.cfg.UsageMonths <= 0 {
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
		if err := s.move(ctx, &months[i]); err != nil {
			return fmt.Errorf("month %s: %w", months[i].Month.Format("2006-01"), err)
		}
	}
	return nil
}

// move takes a closed month as far as it can go.
func (s *Service) move(ctx context.Context, m *Month) error {
	if !m.DroppedAt.IsZero() {
		return nil
	}
	if m.ExportedAt.IsZero() {
		if s.cfg.Dir == "" {
			return nil // an operator will say so
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
		return nil // another run will
	}
	s.cfg.Log.InfoContext(ctx, "month of usage dropped", "month", m.Month.Format("2006-01"), "records", m.Records, "file", m.File)
	return nil
}

// page is how many rows are read at a time.
const page = 1000

// export writes a month to a file and compares what is in it with what the
// month held.
func (s *Service) export(ctx context.Context, m *Month) error {
	var records int64
	var cost money.Nano
	name := "usage-" + m.Month.Format("2006-01") + ".ndjson.gz"
	sum, err := write(s.cfg.Dir, name, func(line func([]byte) error) error {
		q := usage.ExportQuery{From: m.Month, To: m.end(), Limit: page}
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
