package billingapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/margin"
	"modelgateway/controlplane/internal/spreadsheet"
	"modelgateway/controlplane/internal/validation"
)

func (h *Handlers) GetMargin(ctx context.Context, _ *gen.Call, r gen.GetMarginRequestObject) (gen.GetMarginResponseObject, error) {
	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	q, err := marginQuery(&r.Params)
	if err != nil {
		return nil, err
	}

	q.Limit = p.Limit + 1
	if p.Cursor != nil {
		q.After = &margin.Position{}
		if json.Unmarshal(p.Cursor, q.After) != nil {
			return nil, convert.InvalidCursor()
		}
	}

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	report, err := h.Margin.Margin(ctx, q)
	if err != nil {
		return nil, err
	}

	lines, cursor := convert.NextPage(p, report.Lines, marginPosition)
	return gen.GetMargin200JSONResponse{
		Currency:   currency,
		TimeZone:   zoneName(q.Zone),
		From:       convert.Day(q.From),
		To:         convert.Day(q.To),
		Total:      marginView(&report.Total),
		NextCursor: cursor,
		Data:       convert.All(lines, func(l *margin.Line) gen.MarginLine { return marginLine(l, q.By) }),
	}, nil
}

// marginQuery parses the filters of a report.
func marginQuery(params *gen.GetMarginParams) (*margin.Query, error) {
	var invalid validation.Errors
	q := &margin.Query{
		By:         margin.ByDay,
		Model:      convert.Text(params.Model),
		Provider:   convert.Text(params.Provider),
		Route:      convert.Text(params.Route),
		Credential: convert.Text(params.Credential),
		From:       convert.ReadDay(&invalid, "from", params.From),
		To:         convert.ReadDay(&invalid, "to", params.To),
		Zone:       readZone(&invalid, params.TimeZone),
	}
	if params.By != nil {
		q.By = margin.By(*params.By)
	}
	if !slices.Contains(margin.All, q.By) {
		invalid.Add("by", "cannot be %q", q.By)
	}
	q.AccountID, q.KeyID = convert.ReadOwner(&invalid, params.AccountID, params.KeyID)
	q.ProjectID = convert.ReadProjectOrNone(&invalid, params.ProjectID, q.AccountID)
	if err := invalid.Err(); err != nil {
		return nil, err
	}
	return q, q.Complete(time.Now())
}

// marginPosition returns the position of a line in the list.
func marginPosition(l *margin.Line) []byte {
	text, err := json.Marshal(l.Position())
	if err != nil { // numbers and strings always marshal
		panic(err)
	}
	return text
}

func marginView(s *margin.Sums) gen.MarginSums {
	return gen.MarginSums{
		Requests:       s.Requests,
		Charged:        s.Charged.String(),
		ProviderCost:   s.ProviderCost.String(),
		Loss:           s.Loss.String(),
		UnknownCalls:   s.Unknown,
		UnknownCharged: s.UnknownCharged.String(),
		Margin:         s.Margin().String(),
		MarginPercent:  convert.Optional(percent(s)),
	}
}

// percent returns the share of a margin; empty if there is none.
func percent(s *margin.Sums) string {
	share, ok := s.Share()
	if !ok {
		return ""
	}
	sign := ""
	if share < 0 {
		sign, share = "-", -share
	}
	return fmt.Sprintf("%s%d.%d", sign, share/10, share%10)
}

func marginLine(l *margin.Line, by margin.By) gen.MarginLine {
	v := marginView(&l.Sums)
	return gen.MarginLine{
		By:             gen.MarginBy(by),
		Name:           l.Name,
		Provider:       convert.Optional(cmp.Or(l.Provider, l.Route.Provider)),
		Label:          convert.Optional(l.Label),
		Model:          convert.Optional(l.Route.Model),
		Requests:       v.Requests,
		Charged:        v.Charged,
		ProviderCost:   v.ProviderCost,
		Loss:           v.Loss,
		UnknownCalls:   v.UnknownCalls,
		UnknownCharged: v.UnknownCharged,
		Margin:         v.Margin,
		MarginPercent:  v.MarginPercent,
	}
}

type marginExport struct{ export[margin.Line] }

func (e *marginExport) VisitExportMarginResponse(w http.ResponseWriter) error { return e.write(w) }

func (h *Handlers) ExportMargin(
	ctx context.Context,
	_ *gen.Call,
	r gen.ExportMarginRequestObject,
) (gen.ExportMarginResponseObject, error) {
	csv, err := exportFormat(r.Params.Format, r.Params.Accept)
	if err != nil {
		return nil, err
	}

	q, err := marginQuery(&gen.GetMarginParams{
		By:         r.Params.By,
		AccountID:  r.Params.AccountID,
		ProjectID:  r.Params.ProjectID,
		KeyID:      r.Params.KeyID,
		Model:      r.Params.Model,
		Provider:   r.Params.Provider,
		Route:      r.Params.Route,
		Credential: r.Params.Credential,
		TimeZone:   r.Params.TimeZone,
		From:       r.Params.From,
		To:         r.Params.To,
	})
	if err != nil {
		return nil, err
	}

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	q.Limit = exportPage
	e := &marginExport{export[margin.Line]{
		ctx:    ctx,
		name:   "margin",
		csv:    csv,
		header: marginHeader,
		row:    func(w *spreadsheet.Writer, l *margin.Line) { marginRow(w, l, q.By, currency) },
		view:   func(l *margin.Line) (any, error) { return marginLine(l, q.By), nil },
		cursor: func(l *margin.Line) string { return *convert.CursorOf(marginPosition(l)) },
		page: func(ctx context.Context, after *margin.Line) ([]margin.Line, error) {
			if after != nil {
				position := after.Position()
				q.After = &position
			}
			report, err := h.Margin.Margin(ctx, q)
			return report.Lines, err
		},
	}}
	return e, e.begin()
}

// marginHeader names the columns of marginRow.
var marginHeader = []any{
	"by",
	"name",
	"label",
	"model",
	"provider",
	"requests",
	"charged",
	"provider_cost",
	"loss",
	"unknown_calls",
	"unknown_charged",
	"margin",
	"margin_percent",
	"currency",
}

func marginRow(w *spreadsheet.Writer, l *margin.Line, by margin.By, currency string) {
	w.Row(
		string(by),
		l.Name,
		l.Label,
		l.Route.Model,
		cmp.Or(l.Provider, l.Route.Provider),
		spreadsheet.Int(l.Requests),
		spreadsheet.Raw(l.Charged.String()),
		spreadsheet.Raw(l.ProviderCost.String()),
		spreadsheet.Raw(l.Loss.String()),
		spreadsheet.Int(l.Unknown),
		spreadsheet.Raw(l.UnknownCharged.String()),
		spreadsheet.Raw(l.Margin().String()),
		spreadsheet.Raw(percent(&l.Sums)),
		currency,
	)
}
