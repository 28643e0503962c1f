package moneystore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/ledgercheck"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
)

// LedgerCheck keeps runs.
type LedgerCheck struct{ db *postgres.DB }

// NewLedgerCheck returns a store that uses db.
func NewLedgerCheck(db *postgres.DB) *LedgerCheck { return &LedgerCheck{db} }

var _ ledgercheck.Store = (*LedgerCheck)(nil)

func (s *LedgerCheck) Start(ctx context.Context, r ledgercheck.Run) (kept ledgercheck.Run, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		inserted, err := q.InsertLedgerCheck(
			ctx,
			sqlcgen.InsertLedgerCheckParams{ID: ident.UUID(r.ID), Kind: string(r.Kind), Actor: r.Actor},
		)
		if err != nil {
			return postgres.Translate("insert ledger check", err)
		}

		row, err := q.OpenLedgerCheck(ctx, string(r.Kind))
		if errors.Is(err, pgx.ErrNoRows) { // the id was used by a run that has ended
			row, err = q.GetLedgerCheck(ctx, ident.UUID(r.ID))
		}
		if err != nil {
			return postgres.Translate("find ledger check", err)
		}
		if kept, err = toRun(&row); err != nil || inserted == 0 {
			return err
		}

		return changestore.InsertAudit(ctx, q, "ledger_check.start", r.ID, nil, map[string]any{"kind": r.Kind})
	})
	return kept, err
}

func (s *LedgerCheck) Get(ctx context.Context, id ledgercheck.ID) (ledgercheck.Run, error) {
	row, err := s.db.Queries().GetLedgerCheck(ctx, ident.UUID(id))
	if err != nil {
		return ledgercheck.Run{}, postgres.NotFoundAs("get ledger check", err, ledgercheck.ErrNotFound)
	}
	return toRun(&row)
}

func (s *LedgerCheck) List(ctx context.Context, query ledgercheck.Query) ([]ledgercheck.Run, error) {
	rows, err := s.db.Queries().ListLedgerChecks(ctx, sqlcgen.ListLedgerChecksParams{
		Kind: string(query.Kind), Before: ident.UUID(query.Before), RowLimit: int32(query.Limit),
	})
	if err != nil {
		return nil, postgres.Translate("list ledger checks", err)
	}
	runs := make([]ledgercheck.Run, len(rows))
	for i := range rows {
		if runs[i], err = toRun(&rows[i]); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

func (s *LedgerCheck) Claim(ctx context.Context, duration time.Duration) (run ledgercheck.Run, err error) {
	err = s.db.InTx(ctx, func(tx pgx.Tx) error {
		row, err := sqlcgen.New(tx).ClaimLedgerCheck(ctx, duration.Seconds())
		if err != nil {
			return postgres.NotFoundAs("claim ledger check", err, ledgercheck.ErrNotFound)
		}
		run, err = toRun(&row)
		return err
	})
	return run, err
}

func (s *LedgerCheck) Advance(ctx context.Context, r *ledgercheck.Run, duration time.Duration) error {
	return s.change(ctx, "advance ledger check", func(q *sqlcgen.Queries) (int64, error) {
		return q.AdvanceLedgerCheck(ctx, sqlcgen.AdvanceLedgerCheckParams{
			ID:          ident.UUID(r.ID),
			ClaimNumber: r.Claim,
			Done:        r.Done,
			Total:       r.Total,
			Seconds:     duration.Seconds(),
		})
	})
}

func (s *LedgerCheck) End(ctx context.Context, r *ledgercheck.Run) error {
	p := sqlcgen.EndLedgerCheckParams{
		ID:          ident.UUID(r.ID),
		ClaimNumber: r.Claim,
		State:       string(r.State),
		Done:        r.Done,
		Total:       r.Total,
		TookMs:      r.Took.Milliseconds(),
	}
	if r.State == ledgercheck.Done {
		var err error
		if p.Checks, err = json.Marshal(r.Checks); err != nil {
			return fmt.Errorf("encode ledger check: %w", err)
		}
		p.Ok = &r.OK
	}

	return s.change(ctx, "end ledger check", func(q *sqlcgen.Queries) (int64, error) { return q.EndLedgerCheck(ctx, p) })
}

// change changes a claimed run.
func (s *LedgerCheck) change(ctx context.Context, what string, change func(*sqlcgen.Queries) (int64, error)) error {
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		changed, err := change(sqlcgen.New(tx))
		if err == nil && changed == 0 {
			return ledgercheck.ErrClaimLost
		}
		return postgres.Translate(what, err)
	})
}

func (s *LedgerCheck) Record(ctx context.Context, id ledgercheck.ID, kind ledgercheck.Kind, report *ledger.Report) error {
	checks, err := json.Marshal(report.Checks)
	if err != nil {
		return fmt.Errorf("encode ledger check: %w", err)
	}

	ok := report.OK()
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		return postgres.Translate("record ledger check", sqlcgen.New(tx).InsertLedgerCheckResult(ctx, sqlcgen.InsertLedgerCheckResultParams{
			ID:          ident.UUID(id),
			Kind:        string(kind),
			Actor:       audit.By(ctx).Name,
			Total:       int64(len(report.Checks)),
			Ok:          &ok,
			Checks:      checks,
			TookMs:      report.Took.Milliseconds(),
			TookSeconds: report.Took.Seconds(),
		}))
	})
}

func (s *LedgerCheck) DeleteOld(ctx context.Context, kind ledgercheck.Kind, kept int) error {
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		return postgres.Translate(
			"delete ledger checks",
			sqlcgen.New(tx).DeleteOldLedgerChecks(ctx, sqlcgen.DeleteOldLedgerChecksParams{Kind: string(kind), Kept: int32(kept)}),
		)
	})
}

func toRun(row *sqlcgen.LedgerCheck) (ledgercheck.Run, error) {
	r := ledgercheck.Run{
		ID:        ledgercheck.ID(row.ID),
		Kind:      ledgercheck.Kind(row.Kind),
		State:     ledgercheck.State(row.State),
		Actor:     row.Actor,
		Done:      row.Done,
		Total:     row.Total,
		OK:        row.Ok != nil && *row.Ok,
		Took:      time.Duration(row.TookMs) * time.Millisecond,
		Claim:     row.ClaimNumber,
		CreatedAt: row.CreatedAt,
		StartedAt: row.StartedAt,
		EndedAt:   row.EndedAt,
	}
	if row.Checks != nil {
		if err := json.Unmarshal(row.Checks, &r.Checks); err != nil {
			return r, fmt.Errorf("postgres: read ledger check %s: %w", r.ID, err)
		}
	}

	return r, nil
}
