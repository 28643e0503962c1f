package billstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/shared/ident"
)

// batch is how many lines are written in a transaction.
const batch = 5000

// lineCopy writes lines in batches, while they are read: a transaction must not wait for the rest of a file.
type lineCopy struct {
	ctx  context.Context //nolint:containedctx // it lasts as long as one import
	db   *postgres.DB
	bill ident.UUID
	rows [][]any
	// copied is set once there may be lines in Postgres.
	copied bool
	// err is that of Postgres.
	err error
}

var lineColumns = []string{"bill_id", "number", "day", "model", "credential", "request_id", "amount", "rest", "requests", "input", "output"}

func (c *lineCopy) add(l *providerbill.Line) error {
	c.rows = append(c.rows, []any{
		c.bill, l.Number, l.Day, l.Model, l.Credential, l.RequestID, int64(l.Amount.Nano), l.Amount.Rest, l.Requests, l.Input, l.Output,
	})
	if len(c.rows) < batch {
		return nil
	}
	return c.flush()
}

func (c *lineCopy) flush() error {
	if len(c.rows) == 0 {
		return nil
	}
	c.copied = true
	c.err = c.db.InTx(c.ctx, func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(c.ctx, pgx.Identifier{"provider_bill_lines"}, lineColumns, pgx.CopyFromRows(c.rows))
		return err //nolint:wrapcheck // see below
	})
	c.rows = c.rows[:0]
	if c.err != nil {
		return fmt.Errorf("copy the lines of a bill: %w", c.err)
	}
	return nil
}
