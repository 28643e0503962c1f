package moneystore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
)

const (
	// maxSumAge is the maximum age of the stored sums. Older sums are updated by the newer rows.
	maxSumAge = 5 * time.Minute
	// maxDifferences bounds the number of differing pools that are read.
	maxDifferences = 1000
)

// CheckChanged implements ledger.Store. Its cost depends on the rows written in the
// last minutes and on the number of pools and leases, not on the number of records.
func (s *Ledger) CheckChanged(ctx context.Context) (ledger.Report, error) {
	if err := s.updateSums(ctx); err != nil {
		return ledger.Report{}, postgres.Translate("update sums of the ledger check", err)
	}

	report := ledger.Report{At: time.Now().UTC()}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.db.Pool(), snapshot, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		state, err := q.LedgerCheckState(ctx)
		if err != nil {
			return fmt.Errorf("read state of the ledger check: %w", err)
		}
		for _, name := range []string{"pool_conservation", "leases_of_closed_sessions", "credits_equal_balances"} {
			c, err := checkNamed(name).run(ctx, q, ident.UUID{})
			if err != nil {
				return err
			}
			report.Checks = append(report.Checks, c)
		}
		changed, err := changedChecks(ctx, q, state.SummedUntil)
		report.Checks = append(report.Checks, changed...)
		return err
	})
	return report, postgres.Translate("check changed rows", err)
}

func changedChecks(ctx context.Context, q *sqlcgen.Queries, since time.Time) ([]ledger.Check, error) {
	r, err := q.CheckChangedTransactions(ctx, since)
	if err != nil {
		return nil, fmt.Errorf("check transactions: %w", err)
	}

	zero := checkRow{r.Compared, r.Differing, "transaction " + ledger.ID(r.FirstID).String(), 0, r.Got}
	compared, err := q.CountChargedPools(ctx)
	if err != nil {
		return nil, fmt.Errorf("count pools: %w", err)
	}

	rows, err := q.DifferingPools(ctx, sqlcgen.DifferingPoolsParams{Since: since, MaxRows: maxDifferences})
	if err != nil {
		return nil, fmt.Errorf("compare pools: %w", err)
	}

	balances, books, pools := ledger.Check{
		Name: "ledger_equals_balances",
	}, ledger.Check{
		Name: "usage_equals_ledger",
	}, ledger.Check{
		Name: "usage_equals_pools",
	}
	for _, each := range []*ledger.Check{&balances, &books, &pools} {
		each.Compared = compared
	}

	for _, r := range rows {
		owner := "account " + account.ID(r.Owner).String()
		if r.Kind == int16(poolBalance) {
			differ(&balances, owner, r.Entries, r.Balance)
			differ(&books, owner, r.Used, r.Charged)
		}
		differ(&pools, pool(r.ID), r.Used, r.Settled)
	}

	return []ledger.Check{zero.check("ledger_sums_to_zero"), balances, books, pools}, nil
}

// poolBalance is the stored kind of a balance pool.
const poolBalance = 1

// differ counts a row whose values differ.
func differ(c *ledger.Check, row string, want, got int64) {
	if want == got {
		return
	}
	c.Differing++
	if c.First == nil {
		c.First = &ledger.Difference{Row: row, Want: want, Got: got}
	}
}

// updateSums adds rows to the stored sums if the sums are old. One replica does it at
// a time. The others use the stored sums; before the first update there are none.
func (s *Ledger) updateSums(ctx context.Context) error {
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		state, err := q.LedgerCheckState(ctx)
		first := errors.Is(err, pgx.ErrNoRows)
		if err != nil && !first {
			return err
		}
		if !first && time.Duration(state.AgeSeconds*float64(time.Second)) < maxSumAge {
			return nil
		}

		if locked, err := q.TryLockLedgerCheck(ctx); err != nil || !locked {
			if err == nil && first {
				err = errors.New("another replica is computing the first sums")
			}
			return err
		}

		if now, err := q.LedgerCheckState(ctx); err == nil && !now.SummedUntil.Equal(state.SummedUntil) {
			return nil // another replica has updated them
		}

		upto, err := q.LedgerCheckMoment(ctx)
		if err != nil {
			return err
		}
		if err := q.AddLedgerCheckSums(
			ctx,
			sqlcgen.AddLedgerCheckSumsParams{Since: state.SummedUntil, Upto: upto, Dropped: first},
		); err != nil {
			return err
		}

		return q.SetLedgerCheckState(ctx, upto)
	})
}

// Forget implements ledger.Store: the next CheckChanged computes the sums from all
// records.
func (s *Ledger) Forget(ctx context.Context) error {
	return postgres.Translate("delete sums of the ledger check", s.db.Queries().DeleteLedgerCheckSums(ctx))
}
