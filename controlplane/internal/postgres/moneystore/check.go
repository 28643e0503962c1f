package moneystore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
)

// checkRow is the result of a check query: the numbers of compared and differing
// rows, the first differing row, and its two values.
type checkRow struct {
	compared, differing int64
	row                 string
	want, got           int64
}

// check is one invariant and its query. Records of requests before the floor are
// not compared.
type check struct {
	name string
	read func(ctx context.Context, q *sqlcgen.Queries, floor ident.UUID) (checkRow, error)
}

// checks are the invariants, by name.
var checks = []check{
	{"pool_conservation", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckPools(ctx)
		return checkRow{r.Compared, r.Differing, pool(r.FirstID), r.Want, r.Got}, err
	}},
	{"leases_of_closed_sessions", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckLeases(ctx)
		return checkRow{r.Compared, r.Differing, fmt.Sprintf("lease of session %d on pool %d", r.SessionID, r.PoolID), 0, r.Got}, err
	}},
	{"ledger_sums_to_zero", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckTransactions(ctx)
		return checkRow{r.Compared, r.Differing, "transaction " + ledger.ID(r.FirstID).String(), 0, r.Got}, err
	}},
	{"ledger_equals_balances", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckBalances(ctx)
		return checkRow{r.Compared, r.Differing, "account " + account.ID(r.FirstID).String(), r.Want, r.Got}, err
	}},
	{"credits_equal_ledger", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckCreditsAgainstLedger(ctx)
		return checkRow{r.Compared, r.Differing, "account " + account.ID(r.FirstID).String(), r.Want, r.Got}, err
	}},
	{"credits_equal_balances", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckCredits(ctx)
		return checkRow{r.Compared, r.Differing, "account " + account.ID(r.FirstID).String(), r.Want, r.Got}, err
	}},
	{"usage_equals_ledger", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckUsageAgainstLedger(ctx)
		return checkRow{r.Compared, r.Differing, "account " + account.ID(r.FirstID).String(), r.Want, r.Got}, err
	}},
	{"usage_equals_totals", func(ctx context.Context, q *sqlcgen.Queries, floor ident.UUID) (checkRow, error) {
		r, err := q.CheckUsageAgainstTotals(ctx, floor)
		return checkRow{r.Compared, r.Differing, "account " + account.ID(r.FirstID).String(), r.Want, r.Got}, err
	}},
	{"totals_of_models", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckModelTotals(ctx)
		return checkRow{r.Compared, r.Differing, "model " + r.FirstModel, r.Want, r.Got}, err
	}},
	{"totals_of_weeks", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckWeeklyTotals(ctx)
		return checkRow{r.Compared, r.Differing, "account " + account.ID(r.FirstID).String(), r.Want, r.Got}, err
	}},
	{"usage_equals_pools", func(ctx context.Context, q *sqlcgen.Queries, _ ident.UUID) (checkRow, error) {
		r, err := q.CheckUsageAgainstPools(ctx)
		return checkRow{r.Compared, r.Differing, pool(r.FirstID), r.Want, r.Got}, err
	}},
}

// checkNamed returns a check by its name, which must exist.
func checkNamed(name string) *check {
	return &checks[slices.IndexFunc(checks, func(c check) bool { return c.name == name })]
}

func (c *check) run(ctx context.Context, q *sqlcgen.Queries, floor ident.UUID) (ledger.Check, error) {
	row, err := c.read(ctx, q, floor)
	return row.check(c.name), postgres.Translate("check "+c.name, err)
}

func (r *checkRow) check(name string) ledger.Check {
	c := ledger.Check{Name: name, Compared: r.compared, Differing: r.differing}
	if r.differing > 0 {
		c.First = &ledger.Difference{Row: r.row, Want: r.want, Got: r.got}
	}
	return c
}

func pool(id int64) string { return fmt.Sprintf("pool %d", id) }

// Check implements ledger.Store. All invariants are read in one snapshot, so
// that running settlement cannot make them differ.
func (s *Ledger) Check(ctx context.Context, since time.Time, progress ledger.Progress) (ledger.Report, error) {
	floor := postgres.LowestID(since.UTC().Truncate(24 * time.Hour)) // whole days, as totals are
	report := ledger.Report{At: time.Now().UTC()}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.db.Pool(), snapshot, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		for i, c := range checks {
			progress.Report(int64(i), int64(len(checks)))
			found, err := c.run(ctx, q, floor)
			if err != nil {
				return err
			}
			report.Checks = append(report.Checks, found)
		}
		progress.Report(int64(len(checks)), int64(len(checks)))
		return nil
	})
	return report, postgres.Translate("check the ledger", err)
}
