// Package billstore keeps the bills of providers in Postgres: it implements providerbill.Store.
package billstore

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// Store keeps bills.
type Store struct{ db *postgres.DB }

// New returns a store that uses db.
func New(db *postgres.DB) *Store { return &Store{db} }

var _ providerbill.Store = (*Store)(nil)

func (s *Store) Gateway(ctx context.Context, provider string) (currency string, keptFrom time.Time, known bool, err error) {
	q := s.db.Queries()
	if currency, err = catalogstore.ReadCurrency(ctx, q); err != nil {
		return "", keptFrom, false, err
	}
	row, err := q.BillContext(ctx, provider)
	return currency, row.KeptFrom.Time, row.Known, postgres.Translate("read what bills depend on", err)
}

func (s *Store) UnknownCredential(ctx context.Context, b *providerbill.Bill, names []string) (string, error) {
	name, err := s.db.Queries().UnknownCredential(ctx, sqlcgen.UnknownCredentialParams{
		Names:    names,
		Provider: b.Provider,
		FirstDay: day(b.FirstDay),
		LastDay:  day(b.LastDay),
	})
	return name, postgres.Translate("find the credentials of a bill", err)
}

func (s *Store) Find(ctx context.Context, hash [sha256.Size]byte) (*providerbill.Bill, error) {
	row, err := s.db.Queries().FindBill(ctx, hash[:])
	return toBill(&row, err)
}

func (s *Store) Get(ctx context.Context, id ident.UUID) (*providerbill.Bill, error) {
	row, err := s.db.Queries().GetBill(ctx, id)
	return toBill(&row, err)
}

func (s *Store) List(ctx context.Context, before ident.UUID, limit int) ([]providerbill.Bill, error) {
	if before.IsZero() {
		before = postgres.HighestID
	}
	rows, err := s.db.Queries().ListBills(ctx, sqlcgen.ListBillsParams{Before: before, RowLimit: int32(limit)})
	if err != nil {
		return nil, postgres.Translate("list bills", err)
	}
	bills := make([]providerbill.Bill, len(rows))
	for i := range rows {
		bill, err := toBill(&rows[i], nil)
		if err != nil {
			return nil, err
		}
		bills[i] = *bill
	}
	return bills, nil
}

// billID names a bill in the audit log.
type billID ident.UUID

func (id billID) String() string { return "bill/" + ident.Bill.Format(ident.UUID(id)) }

// audited is a bill as the audit log keeps it.
type audited struct {
	Name       string `json:"name,omitempty"`
	Provider   string `json:"provider"`
	SHA256     string `json:"sha256"`
	Lines      int64  `json:"lines"`
	AcceptedAs string `json:"accepted_as,omitempty"`
}

func auditedOf(b *providerbill.Bill) audited {
	return audited{b.Name, b.Provider, fmt.Sprintf("%x", b.Hash), b.Lines, b.AcceptedAs}
}

// Add writes the lines in transactions of their own, because their file comes as slowly as it is sent. The bill makes them valid.
func (s *Store) Add(ctx context.Context, bill *providerbill.Bill, read func(add func(*providerbill.Line) error) error) error {
	lines := lineCopy{ctx: ctx, db: s.db, bill: bill.ID}
	err := read(lines.add)
	if err == nil {
		err = lines.flush()
	}
	refused := err != nil
	if !refused {
		err = s.insert(ctx, bill)
		refused = errors.Is(err, providerbill.ErrImported) // after another error it is not known whether the bill was stored
	}
	if refused && lines.copied {
		if removal := s.removeLines(ctx, bill.ID); removal != nil { // RemoveUnfinished will do it
			err = errors.Join(err, removal)
		}
	}
	if refused && lines.err == nil {
		return err // of the file, or of its upload
	}
	return postgres.Translate("add a bill", err)
}

func (s *Store) insert(ctx context.Context, bill *providerbill.Bill) error {
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		n, err := q.InsertBill(ctx, sqlcgen.InsertBillParams{
			ID:          bill.ID,
			Sha256:      bill.Hash[:],
			Name:        bill.Name,
			Provider:    bill.Provider,
			Format:      string(bill.Content.Format),
			Credential:  bill.Credential,
			TimeZone:    bill.TimeZone,
			Unit:        string(bill.Unit),
			Currency:    bill.Currency,
			FirstDay:    day(bill.FirstDay),
			LastDay:     day(bill.LastDay),
			EndsAt:      bill.EndsAt,
			Lines:       bill.Lines,
			WithRequest: bill.WithRequest,
			Billed:      int64(bill.Billed.Round()),
			Other:       int64(bill.Other.Round()),
			Step:        int64(bill.Step),
			ImportedAt:  bill.ImportedAt,
			ImportedBy:  bill.ImportedBy,
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return providerbill.ErrImported
		}
		return changestore.InsertAudit(ctx, q, "bill.import", billID(bill.ID), nil, auditedOf(bill))
	})
}

// cleanTimeout bounds the removal of the lines of a file that was refused, also if its client has left.
const cleanTimeout = 30 * time.Second

func (s *Store) removeLines(ctx context.Context, bill ident.UUID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	return s.db.InTx(ctx, func(tx pgx.Tx) error { return sqlcgen.New(tx).DeleteBillLines(ctx, bill) })
}

// unfinishedAfter is the age at which lines without a bill are of no import under way.
const unfinishedAfter = time.Hour

// RemoveUnfinished implements providerbill.Store.
func (s *Store) RemoveUnfinished(ctx context.Context) error {
	before := postgres.LowestID(time.Now().Add(-unfinishedAfter))
	left, err := s.db.Queries().UnfinishedBills(ctx, before)
	for _, id := range left {
		if err = s.removeLines(ctx, id); err != nil {
			break
		}
	}
	return postgres.Translate("remove the lines of unfinished imports", err)
}

func (s *Store) Delete(ctx context.Context, id ident.UUID) (found bool, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, err := q.GetBill(ctx, id)
		if found = err == nil; !found {
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		}
		bill, err := toBill(&row, nil)
		if err != nil {
			return err
		}
		n, err := q.DeleteBill(ctx, id)
		if err != nil {
			return err
		}
		if found = n > 0; !found {
			return nil
		}
		if err := q.DeleteBillLines(ctx, id); err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "bill.delete", billID(id), auditedOf(bill), nil)
	})
	return found, postgres.Translate("delete a bill", err)
}

func (s *Store) Accept(ctx context.Context, id ident.UUID, reason string) (bill *providerbill.Bill, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		before, err := q.GetBill(ctx, id)
		if err != nil {
			return err
		}
		if _, err := q.AcceptBill(ctx, sqlcgen.AcceptBillParams{ID: id, AcceptedBy: audit.By(ctx).Name, AcceptedAs: reason}); err != nil {
			return err
		}
		row, err := q.GetBill(ctx, id)
		if err != nil {
			return err
		}
		if bill, err = toBill(&row, nil); err != nil {
			return err
		}
		was, err := toBill(&before, nil)
		if err != nil {
			return err
		}
		return changestore.InsertAudit(ctx, q, "bill.accept", billID(id), auditedOf(was), auditedOf(bill))
	})
	return bill, postgres.NotFoundAs("accept a bill", err, providerbill.ErrNotFound)
}

func (s *Store) Due(ctx context.Context, since time.Time) ([]ident.UUID, error) {
	ids, err := s.db.Queries().BillsDue(ctx, since)
	return ids, postgres.Translate("list bills to compare", err)
}

func (s *Store) Overdue(ctx context.Context, before time.Time) (bills int64, share float64, err error) {
	row, err := s.db.Queries().OverdueBills(ctx, before)
	return row.Bills, row.Share, postgres.Translate("count open bills", err)
}

func day(at time.Time) pgtype.Date { return pgtype.Date{Time: at, Valid: true} }

func toBill(r *sqlcgen.ProviderBill, err error) (*providerbill.Bill, error) {
	if err != nil {
		return nil, postgres.NotFoundAs("read a bill", err, providerbill.ErrNotFound)
	}
	bill := &providerbill.Bill{
		Options: providerbill.Options{
			Name:       r.Name,
			Provider:   r.Provider,
			Credential: r.Credential,
			TimeZone:   r.TimeZone,
		},
		Content: providerbill.Content{
			Format:      providerbill.Format(r.Format),
			Unit:        providerbill.Unit(r.Unit),
			Currency:    r.Currency,
			FirstDay:    r.FirstDay.Time,
			LastDay:     r.LastDay.Time,
			EndsAt:      r.EndsAt,
			Hash:        [sha256.Size]byte(r.Sha256),
			Lines:       r.Lines,
			WithRequest: r.WithRequest,
			Billed:      providerbill.Amount{Nano: money.Nano(r.Billed)},
			Other:       providerbill.Amount{Nano: money.Nano(r.Other)},
			Step:        money.Nano(r.Step),
		},
		ID:         r.ID,
		ImportedAt: r.ImportedAt,
		ImportedBy: r.ImportedBy,
		AcceptedAt: r.AcceptedAt,
		AcceptedBy: r.AcceptedBy,
		AcceptedAs: r.AcceptedAs,
		ComparedAt: r.ComparedAt,
		Comparison: providerbill.Comparison{
			Billed:       money.Nano(r.ComparedBilled),
			Recorded:     money.Nano(r.Recorded),
			Calls:        r.Calls,
			ByModel:      r.ByModel,
			ByCredential: r.ByCredential,
		},
		OpenAmount: money.Nano(r.OpenAmount),
	}
	if err := json.Unmarshal(r.Parts, &bill.Comparison.Parts); err != nil {
		return nil, fmt.Errorf("read the parts of bill %s: %w", ident.Bill.Format(r.ID), err)
	}
	return bill, nil
}
