package billingapi

import (
	"bytes"
	"context"
	"strings"
	"time"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/spreadsheet"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
)

func (h *Handlers) GetStatement(ctx context.Context, _ *gen.Call, r gen.GetStatementRequestObject) (gen.GetStatementResponseObject, error) {
	id, err := h.existingAccount(ctx, r.AccountID)
	if err != nil {
		return nil, err
	}

	q, err := statementQuery(&r.Params, time.Now())
	if err != nil {
		return nil, err
	}

	q.AccountID = id
	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	made, err := h.Statements.Make(ctx, q)
	if err != nil {
		return nil, err
	}

	if strings.Contains(convert.Text(r.Params.Accept), "text/csv") {
		text, err := statementCSV(&made, q.By, currency)
		if err != nil {
			return nil, err
		}
		return gen.GetStatement200TextCSVResponse{Body: bytes.NewReader(text), ContentLength: int64(len(text))}, nil
	}

	return gen.GetStatement200JSONResponse{
		AccountID:      id.String(),
		Currency:       currency,
		From:           convert.Day(made.Period.From),
		To:             convert.Day(made.Period.To),
		TimeZone:       zoneName(q.Zone),
		Final:          made.Final,
		OpeningBalance: made.Opening.String(),
		Payments:       made.Payments.String(),
		Promotions:     made.Promotions.String(),
		Refunds:        made.Refunds.String(),
		Corrections:    made.Corrections.String(),
		Expired:        made.Expired.String(),
		Usage:          made.Usage.String(),
		ClosingBalance: made.Closing.String(),
		Transactions:   convert.All(made.Transactions, transactionView),
		UsageLines:     convert.All(made.Lines, func(t *usage.Total) gen.UsageTotal { return totalView(t, q.By) }),
	}, nil
}

// statementQuery parses the period, a month or two days, and the grouping of the usage lines: by
// default day, key and model.
func statementQuery(params *gen.GetStatementParams, now time.Time) (statement.Query, error) {
	var invalid validation.Errors
	q := statement.Query{By: readGroup(&invalid, params.GroupBy)}
	if len(params.GroupBy) == 0 {
		q.By = usage.Group{Day: true, Key: true, Model: true}
	}
	if q.By.Account {
		invalid.Add("group_by", "cannot be %q", "account")
	}

	q.Period.From, q.Period.To = convert.ReadDay(&invalid, "from", params.From), convert.ReadDay(&invalid, "to", params.To)
	switch {
	case params.Month != nil && (params.From != nil || params.To != nil):
		invalid.Add("month", "cannot be combined with from and to")
	case params.Month != nil:
		month, err := time.Parse(monthForm, *params.Month)
		if err != nil || month.Year() < 1 {
			invalid.Add("month", "must be a month such as 2026-10")
		}
		q.Period = statement.Period{From: month, To: month.AddDate(0, 1, 0)}
	case params.From == nil || params.To == nil:
		invalid.Add("month", "or both from and to are required")
	}

	q.Zone = readZone(&invalid, params.TimeZone)
	if usage.StartOfDay(q.Period.From, q.Zone).After(now) {
		invalid.Add(startOf(params), "is in the future")
	}

	return q, invalid.Err()
}

// startOf returns the parameter with the first day of a statement.
func startOf(params *gen.GetStatementParams) string {
	if params.Month != nil {
		return "month"
	}
	return "from"
}

// statementCSV returns a statement as CSV. Amounts have their sign from the view of the account.
func statementCSV(s *statement.Statement, by usage.Group, currency string) ([]byte, error) {
	var text bytes.Buffer
	w := spreadsheet.NewWriter(&text)
	w.Row(
		"line", "date", "transaction_id", "reference", "reason",
		"request_id", "project_id", "key_id", "model", "service_tier", "requests", "amount", "currency",
	)

	balance := func(line string, on time.Time, amount money.Nano) {
		day, sum := spreadsheet.Raw(on.Format(time.DateOnly)), spreadsheet.Raw(amount.String())
		w.Row(line, day, "", "", "", "", "", "", "", "", "", sum, currency)
	}
	balance("opening_balance", s.Period.From, s.Opening)

	for i := range s.Transactions {
		t := transactionView(&s.Transactions[i])
		w.Row(
			string(t.Kind),
			spreadsheet.Time(t.CreatedAt),
			t.ID,
			t.Reference,
			convert.Text(t.Reason),
			convert.Text(t.RequestID),
			"",
			"",
			"",
			"",
			"",
			spreadsheet.Raw(t.Amount),
			currency,
		)
	}

	for i := range s.Lines {
		t := &s.Lines[i]
		line := totalView(t, by)
		w.Row(
			string(ledger.Usage),
			spreadsheet.Raw(convert.Text(line.Day)),
			"",
			"",
			"",
			"",
			convert.Text(line.ProjectID),
			convert.Text(line.KeyID),
			convert.Text(line.Model),
			convert.Text(line.ServiceTier),
			spreadsheet.Int(t.Requests),
			spreadsheet.Raw((-t.Cost).String()),
			currency,
		)
	}

	balance("closing_balance", s.Period.To, s.Closing)
	if err := w.Flush(); err != nil {
		return nil, err
	}

	return text.Bytes(), nil
}
