package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/table"
	"modelgateway/controlplane/internal/validation"
)

type ledgerExport struct{ export[ledger.Entry] }

// VisitExportLedgerResponse implements gen.ExportLedgerResponseObject.
func (e *ledgerExport) VisitExportLedgerResponse(w http.ResponseWriter) error { return e.write(w) }

// ExportLedger implements gen.StrictServerInterface.
func (s *server) ExportLedger(ctx context.Context, r gen.ExportLedgerRequestObject) (gen.ExportLedgerResponseObject, error) {
	csv, err := exportFormat(r.Params.Format, r.Params.Accept)
	if err != nil {
		return nil, err
	}
	var invalid validation.Errors
	q := ledger.EntryQuery{From: valueOf(r.Params.From), To: until(r.Params.To), Limit: exportPage}
	q.AccountID, _ = readOwner(&invalid, r.Params.AccountID, nil)
	checkSpan(&invalid, valueOf(r.Params.From), valueOf(r.Params.To))
	if r.Params.Cursor != nil && *r.Params.Cursor != "" {
		id, line, _ := strings.Cut(*r.Params.Cursor, "/")
		var broken error
		if q.After, err = ledger.ParseID(id); err == nil {
			q.AfterLine, broken = strconv.Atoi(line)
		}
		if err != nil || broken != nil || q.AfterLine < 1 || q.AfterLine > 1<<30 {
			invalid.Add("cursor", "must be the transaction and line of the last entry that arrived, such as txn_…/2")
		}
	}
	if err := invalid.Err(); err != nil {
		return nil, err
	}
	currency, err := s.cfg.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}
	e := &ledgerExport{export[ledger.Entry]{
		ctx: ctx, name: "ledger", csv: csv,
		header: []any{"transaction_id", "line", "booked_at", "kind", "book", "account_id", "amount", "currency", "reference", "reason", "actor", "request_id"},
		row:    func(w *table.Writer, r *ledger.Entry) { entryRow(w, r, currency) },
		view:   func(r *ledger.Entry) (any, error) { return entryView(r), nil },
		cursor: func(r *ledger.Entry) string { return r.TransactionID.String() + "/" + strconv.Itoa(r.Line) },
		page: func(ctx context.Context, after *ledger.Entry) ([]ledger.Entry, error) {
			if after != nil {
				q.After, q.AfterLine = after.TransactionID, after.Line
			}
			return s.cfg.Ledger.Entries(ctx, q)
		},
	}}
	return e, e.begin()
}

func entryView(e *ledger.Entry) gen.LedgerEntry {
	return gen.LedgerEntry{
		TransactionID: e.TransactionID.String(), Line: e.Line, BookedAt: e.CreatedAt, Kind: string(kindView(e.Kind)), Book: e.Book,
		AccountID: present(accountText(e.AccountID)), Amount: e.Amount.String(), Reference: e.Reference, Reason: present(e.Reason),
		Actor: present(e.Actor), RequestID: present(e.RequestID),
	}
}

func entryRow(w *table.Writer, e *ledger.Entry, currency string) {
	w.Row(e.TransactionID.String(), table.Int(int64(e.Line)), table.Time(e.CreatedAt), string(kindView(e.Kind)), e.Book,
		accountText(e.AccountID), table.Plain(e.Amount.String()), currency, e.Reference, e.Reason, e.Actor, e.RequestID)
}

// accountText is an account's id, or "" for none.
func accountText(id account.ID) string {
	if id == (account.ID{}) {
		return ""
	}
	return id.String()
}
