package httpapi

import (
	"bytes"
	"context"
	"strings"
	"time"

	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/table"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
)

// GetStatement implements gen.StrictServerInterface.
func (s *server) GetStatement(ctx context.Context, r gen.GetStatementRequestObject) (gen.GetStatementResponseObject, error) {
	id, err := s.existing(ctx, r.AccountID)
	if err != nil {
		return nil, err
	}
	q, err := statementQuery(&r.Params)
	if err != nil {
		return nil, err
	}
	q.AccountID = id
	currency, err := s.cfg.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}
	made, err := s.cfg.Statements.Make(ctx, q)
	if err != nil {
		return nil, err
	}
	if strings.Contains(orEmpty(r.Params.Accept), "text/csv") {
		text := statementCSV(&made, q.By, currency)
		return gen.GetStatement200TextCsvResponse{Body: bytes.NewReader(text), ContentLength: int64(len(text))}, nil
	}
	return gen.GetStatement200JSONResponse{
		AccountID: id.String(), Currency: currency, From: *dayView(made.Period.From, true), To: *dayView(made.Period.To, true), Final: made.Final,
		OpeningBalance: made.Opening.String(), Credits: made.Credits.String(), Corrections: made.Corrections.String(),
		Usage: made.Usage.String(), ClosingBalance: made.Closing.String(), Transactions: all(made.Transactions, transactionView),
		UsageLines: all(made.Lines, func(t *usage.Total) gen.UsageTotal { return totalView(t, q.By) }),
	}, nil
}

// statementQuery reads the period, a month or two days, and what lines tell
// apart: day, key and model if nothing is said.
func statementQuery(params *gen.GetStatementParams) (statement.Query, error) {
	var invalid validation.Errors
	q := statement.Query{By: readGroup(&invalid, params.GroupBy)}
	if len(params.GroupBy) == 0 {
		q.By = usage.Group{Day: true, Key: true, Model: true}
	}
	if q.By.Account {
		invalid.Add("group_by", "cannot be %q", "account")
	}
	q.Period.From, q.Period.To = readDay(&invalid, "from", params.From), readDay(&invalid, "to", params.To)
	switch {
	case params.Month != nil && (params.From != nil || params.To != nil):
		invalid.Add("month", "cannot be given beside from and to")
	case params.Month != nil:
		month, err := time.Parse(monthForm, *params.Month)
		if err != nil || month.Year() < 1 {
			invalid.Add("month", "must be a month such as 2026-10")
		}
		q.Period = statement.Period{From: month, To: month.AddDate(0, 1, 0)}
	case params.From == nil || params.To == nil:
		invalid.Add("month", "or both from and to must be given")
	}
	return q, invalid.Err()
}

// statementCSV writes a statement as a table: one row per line, amounts with
// the sign that they have for the account.
func statementCSV(s *statement.Statement, by usage.Group, currency string) []byte {
	var w table.Writer
	w.Row("line", "date", "transaction_id", "reference", "reason", "request_id", "key_id", "model", "requests", "amount", "currency")
	balance := func(line string, on time.Time, amount money.Nano) {
		w.Row(line, table.Plain(on.Format(time.DateOnly)), "", "", "", "", "", "", "", table.Plain(amount.String()), currency)
	}
	balance("opening_balance", s.Period.From, s.Opening)
	for i := range s.Transactions {
		t := transactionView(&s.Transactions[i])
		w.Row(string(t.Kind), table.Time(t.CreatedAt), t.ID, t.Reference, orEmpty(t.Reason), orEmpty(t.RequestID), "", "", "",
			table.Plain(t.Amount), currency)
	}
	for i := range s.Lines {
		t := &s.Lines[i]
		line := totalView(t, by)
		w.Row(string(ledger.Usage), table.Plain(orEmpty(line.Day)), "", "", "", "", orEmpty(line.KeyID), orEmpty(line.Model),
			table.Int(t.Requests), table.Plain((-t.Cost).String()), currency)
	}
	balance("closing_balance", s.Period.To, s.Closing)
	return w.Bytes()
}
