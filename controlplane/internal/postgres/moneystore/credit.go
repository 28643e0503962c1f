package moneystore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// heldCredits are the open credits of an account whose balance pool is locked, with the stored values of those that may change.
type heldCredits struct {
	*ledger.Credits
	account ident.UUID
	pool    int64
	stored  map[*ledger.Credit]ledger.Credit
}

// loadCredits reads the open credits of an account, whose balance pool is locked.
func loadCredits(ctx context.Context, q *sqlcgen.Queries, pool *sqlcgen.LockPoolsRow) (*heldCredits, error) {
	rows, err := q.OpenCredits(ctx, pool.AccountID)
	if err != nil {
		return nil, fmt.Errorf("read credits: %w", err)
	}
	c := &heldCredits{
		account: pool.AccountID,
		pool:    pool.ID,
		stored:  make(map[*ledger.Credit]ledger.Credit, len(rows)),
	}
	open := make([]*ledger.Credit, len(rows))
	for i := range rows {
		open[i] = creditOf(&rows[i])
		c.stored[open[i]] = *open[i]
	}
	c.Credits = ledger.NewCredits(open, money.Nano(pool.Attributed), money.Nano(pool.Uncovered))
	return c, nil
}

// find returns a credit of the account, open or not, or ErrNoCredit.
func (c *heldCredits) find(ctx context.Context, q *sqlcgen.Queries, id ledger.ID) (*ledger.Credit, error) {
	if open := c.Find(id); open != nil {
		return open, nil
	}
	row, err := q.GetCredit(ctx, sqlcgen.GetCreditParams{AccountID: c.account, TransactionID: ident.UUID(id)})
	if err != nil {
		return nil, postgres.NotFoundAs("get credit", err, ledger.ErrNoCredit)
	}
	found := creditOf((*sqlcgen.OpenCreditsRow)(&row))
	c.stored[found] = *found
	return found, nil
}

// save writes the credits that have changed, and how far charges are attributed.
func (c *heldCredits) save(ctx context.Context, q *sqlcgen.Queries) error {
	arg := sqlcgen.SaveCreditsParams{AccountID: c.account}
	add := func(credit *ledger.Credit) {
		arg.Ids = append(arg.Ids, ident.UUID(credit.ID))
		arg.Amounts = append(arg.Amounts, int64(credit.Amount))
		arg.Used = append(arg.Used, int64(credit.Used))
		arg.Refunded = append(arg.Refunded, int64(credit.Refunded))
		arg.Expired = append(arg.Expired, int64(credit.Expired))
		arg.Held = append(arg.Held, int64(credit.Held))
		arg.IsExpired = append(arg.IsExpired, credit.Ended())
	}

	for credit, stored := range c.stored {
		if *credit != stored {
			add(credit)
		}
	}
	for _, credit := range c.Open {
		if _, known := c.stored[credit]; !known {
			add(credit)
		}
	}

	if len(arg.Ids) > 0 {
		if err := q.SaveCredits(ctx, arg); err != nil {
			return fmt.Errorf("write credits: %w", err)
		}
	}
	if err := q.SetAttributed(ctx, sqlcgen.SetAttributedParams{
		ID:         c.pool,
		Attributed: int64(c.Attributed),
		Uncovered:  int64(c.Uncovered),
		Expiring:   int64(c.Held()),
	}); err != nil {
		return fmt.Errorf("write attributed charges: %w", err)
	}
	return nil
}

// states returns the ids of the open credits, and of those of them in a state. Neither is nil, which would be null in SQL.
func (c *heldCredits) states(state ledger.CreditState) (open, inState []ident.UUID) {
	open, inState = []ident.UUID{}, []ident.UUID{}
	for _, credit := range c.Open {
		open = append(open, ident.UUID(credit.ID))
		if credit.State() == state {
			inState = append(inState, ident.UUID(credit.ID))
		}
	}
	return open, inState
}

func creditOf(row *sqlcgen.OpenCreditsRow) *ledger.Credit {
	return &ledger.Credit{
		ID:        ledger.ID(row.TransactionID),
		AccountID: account.ID(row.AccountID),
		Kind:      ledger.Kind(row.Kind),
		Reference: row.Reference,
		Amount:    money.Nano(row.Amount),
		Priority:  int(row.Priority),
		ExpiresAt: postgres.Deref(row.ExpiresAt),
		CreatedAt: row.CreatedAt,
		Used:      money.Nano(row.Used),
		Refunded:  money.Nano(row.Refunded),
		Expired:   money.Nano(row.Expired),
		Held:      money.Nano(row.Held),
		EndedAt:   postgres.Deref(row.ExpiredAt),
		Due:       row.Due,
	}
}

func (s *Ledger) Credits(ctx context.Context, query ledger.CreditQuery) (found []ledger.Credit, uncovered money.Nano, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.db.Pool(), snapshot, func(tx pgx.Tx) error {
		q := postgres.Planned(tx)
		id := ident.UUID(query.AccountID)
		pool, err := q.CreditPool(ctx, id)
		if err != nil {
			return postgres.NotFoundAs("read balance", err, account.ErrNotFound)
		}

		open, err := loadCredits(ctx, q, &sqlcgen.LockPoolsRow{
			ID:         pool.ID,
			AccountID:  id,
			Attributed: pool.Attributed,
			Uncovered:  pool.Uncovered,
		})
		if err != nil {
			return err
		}

		open.Advance(money.Nano(pool.Settled))
		uncovered = open.Uncovered
		params := sqlcgen.ListCreditsParams{
			AccountID:     id,
			FirstPage:     query.Before == ledger.ID{},
			Before:        ident.UUID(query.Before),
			Kind:          string(query.Kind),
			Reference:     query.Reference,
			FromMoment:    query.From,
			ToMoment:      query.To,
			ExpiresBefore: query.ExpiresBefore,
			State:         string(query.State),
			RowLimit:      int32(query.Limit),
		}
		if query.State != "" {
			params.Open, params.InState = open.states(query.State)
		}
		rows, err := q.ListCredits(ctx, params)
		if err != nil {
			return fmt.Errorf("list credits: %w", err)
		}

		found = make([]ledger.Credit, len(rows))
		for i := range rows {
			found[i] = *creditOf((*sqlcgen.OpenCreditsRow)(&rows[i]))
			if now := open.Find(found[i].ID); now != nil {
				found[i] = *now
			}
		}
		return nil
	})
	return found, uncovered, postgres.Translate("list credits", err)
}
