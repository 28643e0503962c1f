package billingapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/spreadsheet"
	"modelgateway/controlplane/internal/validation"
)

type ledgerExport struct{ export[ledger.Entry] }

func (e *ledgerExport) VisitExportLedgerResponse(w http.ResponseWriter) error { return e.write(w) }

func (h *Handlers) ExportLedger(ctx context.Context, _ *gen.Call, r gen.ExportLedgerRequestObject) (gen.ExportLedgerResponseObject, error) {
	csv, err := exportFormat(r.Params.Format, r.Params.Accept)
	if err != nil {
		return nil, err
	}

	var invalid validation.Errors
	kind, err := readKind(r.Params.Kind)
	if err != nil {
		return nil, err
	}
	q := ledger.EntryQuery{
		Kind:  kind,
		From:  convert.Value(r.Params.From),
		To:    until(r.Params.To),
		Limit: exportPage,
	}
	q.AccountID, _ = convert.ReadOwner(&invalid, r.Params.AccountID, nil)
	convert.CheckTimeRange(&invalid, convert.Value(r.Params.From), convert.Value(r.Params.To))

	if r.Params.Cursor != nil && *r.Params.Cursor != "" {
		id, line, _ := strings.Cut(*r.Params.Cursor, "/")
		var broken error
		if q.After, err = ledger.ParseID(id); err == nil {
			q.AfterLine, broken = strconv.Atoi(line)
		}
		if err != nil || broken != nil || q.AfterLine < 1 || q.AfterLine > 1<<30 {
			invalid.Add("cursor", "must be the transaction and line of the last received entry, such as txn_…/2")
		}
	}

	if err := invalid.Err(); err != nil {
		return nil, err
	}

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	e := &ledgerExport{
		export[ledger.Entry]{
			ctx:  ctx,
			name: "ledger",
			csv:  csv,
			header: []any{
				"transaction_id",
				"line",
				"booked_at",
				"kind",
				"ledger_account",
				"account_id",
				"amount",
				"currency",
				"reference",
				"reason",
				"actor",
				"request_id",
				"credit_id",
				"priority",
				"expires_at",
				"effective_at",
			},
			row:    func(w *spreadsheet.Writer, r *ledger.Entry) { entryRow(w, r, currency) },
			view:   func(r *ledger.Entry) (any, error) { return entryView(r), nil },
			cursor: func(r *ledger.Entry) string { return r.TransactionID.String() + "/" + strconv.Itoa(r.Line) },
			page: func(ctx context.Context, after *ledger.Entry) ([]ledger.Entry, error) {
				if after != nil {
					q.After, q.AfterLine = after.TransactionID, after.Line
				}
				return h.Ledger.Entries(ctx, q)
			},
		},
	}
	return e, e.begin()
}

func entryView(e *ledger.Entry) gen.LedgerEntry {
	view := gen.LedgerEntry{
		TransactionID: e.TransactionID.String(),
		Line:          e.Line,
		BookedAt:      e.CreatedAt,
		Kind:          string(e.Kind),
		LedgerAccount: e.LedgerAccount,
		AccountID:     convert.Optional(accountText(e.AccountID)),
		Amount:        e.Amount.String(),
		Reference:     e.Reference,
		Reason:        convert.Optional(e.Reason),
		Actor:         convert.Optional(e.Actor),
		RequestID:     convert.Optional(e.RequestID),
		CreditID:      convert.Optional(creditText(e.CreditID)),
		ExpiresAt:     optionalTime(e.ExpiresAt),
		EffectiveAt:   optionalTime(e.EffectiveAt),
	}
	if e.OfCredit() {
		view.Priority = &e.Priority
	}
	return view
}

func entryRow(w *spreadsheet.Writer, e *ledger.Entry, currency string) {
	var priority any = ""
	if e.OfCredit() {
		priority = spreadsheet.Int(int64(e.Priority))
	}
	w.Row(
		e.TransactionID.String(),
		spreadsheet.Int(int64(e.Line)),
		spreadsheet.Time(e.CreatedAt),
		string(e.Kind),
		e.LedgerAccount,
		accountText(e.AccountID),
		spreadsheet.Raw(e.Amount.String()),
		currency,
		e.Reference,
		e.Reason,
		e.Actor,
		e.RequestID,
		creditText(e.CreditID),
		priority,
		spreadsheet.Time(e.ExpiresAt),
		spreadsheet.Time(e.EffectiveAt),
	)
}

// accountText is an account's id, or "" for none.
func accountText(id account.ID) string {
	if id == (account.ID{}) {
		return ""
	}
	return id.String()
}
