package billstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/shared/ident"
)

// batch is how many lines are copied at once.
const batch = 10_000

// lineCopy writes lines in batches.
type lineCopy struct {
	ctx  context.Context
	tx   pgx.Tx
	bill ident.UUID
	rows [][]any
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
	_, err := c.tx.CopyFrom(c.ctx, pgx.Identifier{"provider_bill_lines"}, lineColumns, pgx.CopyFromRows(c.rows))
	c.rows = c.rows[:0]
	if err != nil {
		return fmt.Errorf("copy the lines of a bill: %w", err)
	}
	return nil
}
