// Package accountstore keeps in Postgres who may use the gateway and the admin API: accounts, their keys, admin tokens and the
// sessions of the console, with the rotations of the secrets that protect them. It also finds objects for the search and
// remembers the requests of the admin API that may be repeated.
package accountstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// Accounts keeps accounts.
type Accounts struct{ db *postgres.DB }

// NewAccounts returns a store that uses db.
func NewAccounts(db *postgres.DB) *Accounts { return &Accounts{db} }

func (s *Accounts) Create(ctx context.Context, a account.Account) (made account.Account, err error) {
	err = s.db.InRevision(ctx, "create account", func(q *sqlcgen.Queries, rev int64) error {
		row, err := q.InsertAccount(ctx, sqlcgen.InsertAccountParams{
			ID:                    ident.UUID(a.ID),
			ExternalID:            a.ExternalID,
			Name:                  a.Name,
			Status:                string(a.Status),
			MaxConcurrentRequests: int32(a.MaxConcurrentRequests),
			MaxOpenVideoJobs:      narrow(a.MaxOpenVideoJobs),
			Revision:              rev,
			PriceMultiplier:       int64(a.PriceMultiplier.Or(price.One)),
			ModelMultipliers:      encodeMap(a.ModelMultipliers),
			IncludeCost:           a.IncludeCost,
			Metadata:              encodeMap(a.Metadata),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			made, err = existingAccount(ctx, q, a.ID)
			return err
		}

		if err != nil {
			return err
		}
		if made, err = toAccount(&row); err != nil {
			return err
		}

		err = q.InsertAccountPools(ctx, sqlcgen.InsertAccountPoolsParams{AccountID: row.ID, Slots: int64(a.MaxConcurrentRequests)})
		if err != nil {
			return err
		}

		return changestore.InsertAudit(ctx, q, "account.create", a.ID, nil, made)
	})
	return made, err
}

// existingAccount returns the account with the id of an insert that had a conflict.
// If there is none, another account has the external id.
func existingAccount(ctx context.Context, q *sqlcgen.Queries, id account.ID) (account.Account, error) {
	row, err := q.GetAccount(ctx, ident.UUID(id))
	if errors.Is(err, pgx.ErrNoRows) {
		return account.Account{}, account.ErrExternalIDTaken
	}
	if err != nil {
		return account.Account{}, err
	}
	return withBalance(ctx, q, &row)
}

func (s *Accounts) Get(ctx context.Context, id account.ID) (account.Account, error) {
	row, err := s.db.Queries().GetAccount(ctx, ident.UUID(id))
	if err != nil {
		return account.Account{}, postgres.NotFoundAs("get account", err, account.ErrNotFound)
	}
	a, err := withBalance(ctx, s.db.Queries(), &row)
	return a, postgres.Translate("get account", err)
}

func (s *Accounts) List(ctx context.Context, query account.Query) ([]account.Account, error) {
	rows, err := s.list(ctx, &query)
	if err != nil {
		return nil, postgres.Translate("list accounts", err)
	}
	accounts := make([]account.Account, len(rows))
	for i := range rows {
		if accounts[i], err = toAccount(&rows[i]); err != nil {
			return nil, err
		}
	}
	return accounts, postgres.Translate("list accounts", fillBalances(ctx, s.db.Queries(), accounts))
}

func (s *Accounts) list(ctx context.Context, query *account.Query) ([]sqlcgen.Account, error) {
	q := s.db.PlannedQueries()
	if query.Sort == "" || query.Sort == account.ByCreation {
		return q.ListAccounts(ctx, sqlcgen.ListAccountsParams{
			After:      ident.UUID(query.After),
			ExternalID: query.ExternalID,
			Status:     string(query.Status),
			Part:       postgres.Containing(query.Text),
			RowLimit:   int32(query.Limit),
		})
	}

	ranked, err := q.RankAccounts(ctx, sqlcgen.RankAccountsParams{
		Sort:       string(query.Sort),
		ExternalID: query.ExternalID,
		Status:     string(query.Status),
		Part:       postgres.Containing(query.Text),
		FirstPage:  query.After == account.ID{},
		AfterRank:  query.AfterRank,
		After:      ident.UUID(query.After),
		RowLimit:   int32(query.Limit),
	})
	if err != nil {
		return nil, err
	}

	ids, order := make([]ident.UUID, len(ranked)), make(map[ident.UUID]int, len(ranked))
	for i := range ranked {
		ids[i], order[ranked[i].ID] = ranked[i].ID, i
	}

	rows, err := q.GetAccounts(ctx, ids)
	slices.SortFunc(rows, func(a, b sqlcgen.Account) int { return cmp.Compare(order[a.ID], order[b.ID]) })
	return rows, err
}

func (s *Accounts) Update(
	ctx context.Context, id account.ID, decide func(account.Account) (account.Update, error),
) (after account.Account, announce *wire.KeyChange, err error) {
	err = s.db.InRevision(ctx, "update account", func(q *sqlcgen.Queries, rev int64) error {
		announce = nil
		row, err := q.LockAccount(ctx, ident.UUID(id))
		if err != nil {
			return postgres.NotFoundAs("lock account", err, account.ErrNotFound)
		}

		before, err := toAccount(&row)
		if err != nil {
			return err
		}

		update, err := decide(before)
		if err != nil {
			return err
		}

		if update.Unchanged {
			after, err = withBalance(ctx, q, &row)
			return err
		}

		if row, err = q.UpdateAccount(ctx, sqlcgen.UpdateAccountParams{
			ID:                    row.ID,
			Name:                  update.Account.Name,
			Status:                string(update.Account.Status),
			MaxConcurrentRequests: int32(update.Account.MaxConcurrentRequests),
			MaxOpenVideoJobs:      narrow(update.Account.MaxOpenVideoJobs),
			Revision:              rev,
			PriceMultiplier:       int64(update.Account.PriceMultiplier),
			ModelMultipliers:      encodeMap(update.Account.ModelMultipliers),
			IncludeCost:           update.Account.IncludeCost,
			Metadata:              encodeMap(update.Account.Metadata),
		}); err != nil {
			return err
		}

		if err := setSlots(ctx, q, row.ID, int64(row.MaxConcurrentRequests)); err != nil {
			return err
		}

		if update.Announce {
			c, err := changestore.InsertKeyChange(ctx, q, rev, wire.AccountUpdated, row.ID, nil)
			if err != nil {
				return err
			}
			announce = &c
		}

		if after, err = withBalance(ctx, q, &row); err != nil {
			return err
		}

		return changestore.InsertAudit(ctx, q, "account.update", id, before, after)
	})
	return after, announce, err
}

func setSlots(ctx context.Context, q *sqlcgen.Queries, id ident.UUID, slots int64) error {
	row, err := q.LockAccountPool(ctx, sqlcgen.LockAccountPoolParams{AccountID: id, Kind: int16(wire.Slots)})
	if err != nil {
		return fmt.Errorf("lock slots: %w", err)
	}
	_, err = leasestore.ResizePool(ctx, q, (*sqlcgen.LockPoolsRow)(&row), func(p *allocator.Pool) { p.Resize(slots) })
	return err
}

func toAccount(row *sqlcgen.Account) (account.Account, error) {
	a := account.Account{
		ID:                    account.ID(row.ID),
		ExternalID:            postgres.Deref(row.ExternalID),
		Name:                  row.Name,
		Status:                account.Status(row.Status),
		MaxConcurrentRequests: int(row.MaxConcurrentRequests),
		PriceMultiplier:       price.Multiplier(row.PriceMultiplier),
		IncludeCost:           row.IncludeCost,
		Rev:                   row.Revision,
		CreatedAt:             row.CreatedAt,
		UpdatedAt:             row.UpdatedAt,
	}
	if limit := row.MaxOpenVideoJobs; limit != nil {
		a.MaxOpenVideoJobs = new(int(*limit))
	}
	if err := json.Unmarshal(row.ModelMultipliers, &a.ModelMultipliers); err != nil {
		return account.Account{}, fmt.Errorf("postgres: read the multipliers of %s: %w", a.ID, err)
	}
	if err := json.Unmarshal(row.Metadata, &a.Metadata); err != nil {
		return account.Account{}, fmt.Errorf("postgres: read the metadata of %s: %w", a.ID, err)
	}

	return a, nil
}

// narrow returns a limit as Postgres stores it.
func narrow(limit *int) *int32 {
	if limit == nil {
		return nil
	}
	return new(int32(*limit))
}

func encodeMap[V string | price.Multiplier](values map[string]V) []byte {
	if len(values) == 0 {
		return []byte("{}")
	}
	return mustEncode(values)
}

// mustEncode encodes values that always can be.
func mustEncode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

func withBalance(ctx context.Context, q *sqlcgen.Queries, row *sqlcgen.Account) (account.Account, error) {
	a, err := toAccount(row)
	if err != nil {
		return a, err
	}
	one := []account.Account{a}
	err = fillBalances(ctx, q, one)
	return one[0], err
}

// fillBalances reads the balances of accounts with one query.
func fillBalances(ctx context.Context, q *sqlcgen.Queries, accounts []account.Account) error {
	ids := make([]ident.UUID, len(accounts))
	for i := range accounts {
		ids[i] = ident.UUID(accounts[i].ID)
	}

	rows, err := q.AccountBalances(ctx, ids)
	if err != nil {
		return err
	}

	balances := make(map[account.ID]account.Balance, len(rows))
	for i := range rows {
		balances[account.ID(rows[i].AccountID)] = BalanceOf(&rows[i])
	}

	for i := range accounts {
		accounts[i].Balance = balances[accounts[i].ID]
	}

	return fillFigures(ctx, q, ids, accounts)
}

func fillFigures(ctx context.Context, q *sqlcgen.Queries, ids []ident.UUID, accounts []account.Account) error {
	rows, err := q.AccountFigures(ctx, ids)
	if err != nil {
		return err
	}

	figures := make(map[account.ID]account.Figures, len(rows))
	for i := range rows {
		r := &rows[i]
		f := account.Figures{CostToday: money.Nano(r.Today), Cost7d: money.Nano(r.SevenDays)}
		if r.Hours >= 0 {
			f.HoursLeft = &r.Hours
		}
		figures[account.ID(r.AccountID)] = f
	}

	for i := range accounts {
		accounts[i].Figures = figures[accounts[i].ID]
	}

	return nil
}

// BalanceOf returns the balance of an account from its row.
func BalanceOf(row *sqlcgen.AccountBalancesRow) account.Balance {
	return account.Balance{
		Pool:      wire.PoolID(row.PoolID),
		Balance:   money.Nano(row.Balance),
		Reserved:  money.Nano(row.Reserved),
		Available: money.Nano(row.Available),
	}
}

func (s *Accounts) SummarizeBalances(ctx context.Context) (account.BalanceSummary, error) {
	row, err := s.db.Queries().SummarizeBalances(ctx)
	return account.BalanceSummary{
		Negative:   row.Negative,
		Exhausted:  row.Exhausted,
		Low:        row.Low,
		Sufficient: row.Sufficient,
		Overdrawn:  money.Nano(row.Overdrawn),
		Overrun:    money.Nano(row.Overrun),
		Late:       money.Nano(row.Late),
	}, postgres.Translate("summarize balances", err)
}
