package billingapi

import (
	"context"
	"net/http"
	"slices"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/spreadsheet"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/price"
)

type usageExport struct{ export[usage.Record] }

func (e *usageExport) VisitExportUsageResponse(w http.ResponseWriter) error { return e.write(w) }

func (h *Handlers) ExportUsage(ctx context.Context, _ *gen.Call, r gen.ExportUsageRequestObject) (gen.ExportUsageResponseObject, error) {
	csv, err := exportFormat(r.Params.Format, r.Params.Accept)
	if err != nil {
		return nil, err
	}

	q, err := exportQuery(&r.Params)
	if err != nil {
		return nil, err
	}

	currency, err := h.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}

	header, provider := usageHeader, admin.SeesProviderCost(ctx)
	if provider {
		header = slices.Concat(usageHeader, providerHeader)
	}

	e := &usageExport{export[usage.Record]{
		ctx:    ctx,
		name:   "usage",
		csv:    csv,
		header: header,
		row:    func(w *spreadsheet.Writer, r *usage.Record) { usageRow(w, r, currency, provider) },
		view:   func(r *usage.Record) (any, error) { return usageView(ctx, r) },
		cursor: func(r *usage.Record) string { return r.RequestID.String() },
		page: func(ctx context.Context, after *usage.Record) ([]usage.Record, error) {
			if after != nil {
				q.After = after.RequestID
			}
			return h.Usage.Export(ctx, q)
		},
	}}
	return e, e.begin()
}

// exportQuery parses the filters of an export, which are those of the list, and where it continues.
func exportQuery(p *gen.ExportUsageParams) (usage.Query, error) {
	q, err := usageQuery(&gen.ListUsageParams{
		AccountID:       p.AccountID,
		ProjectID:       p.ProjectID,
		KeyID:           p.KeyID,
		Model:           p.Model,
		From:            p.From,
		To:              p.To,
		Status:          p.Status,
		Provider:        p.Provider,
		Route:           p.Route,
		Credential:      p.Credential,
		Format:          p.RequestFormat,
		Stream:          p.Stream,
		Estimated:       p.Estimated,
		MinCost:         p.MinCost,
		RequestIDPrefix: p.RequestIDPrefix,
	})
	q.To, q.Limit = until(p.To), exportPage
	if p.Cursor != nil && *p.Cursor != "" {
		var broken error
		if q.After, broken = usage.ParseRequestID(*p.Cursor); broken != nil {
			err = validation.Merge(err, validation.New("cursor", "must be the id of the last received request"))
		}
	}
	return q, err
}

// usageHeader names the columns of usageRow.
var usageHeader = slices.Concat([]any{
	"request_id",
	"account_id",
	"key_id",
	"project_id",
	"model",
	"format",
	"provider",
	"route",
	"credential",
	"provider_request_id",
	"status",
	"http_status",
	"stream",
	"started_at",
	"finished_at",
	"settled_at",
	"first_byte_ms",
	"rule",
	"estimated",
	"doubt",
	"price_version",
	"price_multiplier",
	"cost",
	"reservation",
	"currency",
	"video_job",
	"failed_calls",
}, kindColumns(), []any{
	"size",
	"quality",
	"service_tier",
	"secondary_kind",
	"secondary_model",
	"secondary_input",
	"secondary_cached_input",
	"secondary_cache_write_5m",
	"secondary_cache_write_1h",
	"secondary_image_in",
	"secondary_output",
	"secondary_reasoning",
	"secondary_image_out",
	"secondary_images",
})

// providerHeader names the further columns for those who may see what requests cost the operator.
var providerHeader = []any{"provider_cost", "provider_price_version", "failed_calls_cost"}

// kindColumns names the columns of the kinds of usage.
func kindColumns() []any {
	columns := make([]any, len(price.Kinds))
	for i, k := range price.Kinds {
		columns[i] = string(k.Line)
	}
	return columns
}

// providerCell is empty if the provider cost is unknown: that is not zero.
func providerCell(r *usage.Record) any {
	if r.ProviderCost == nil {
		return ""
	}
	return spreadsheet.Raw(r.ProviderCost.String())
}

// failedCell is empty if no call that failed has a known cost.
func failedCell(r *usage.Record) any {
	cost, known := r.FailedCallsCost()
	if !known {
		return ""
	}
	return spreadsheet.Raw(cost.String())
}

func versionCell(version int64) any {
	if version == 0 {
		return ""
	}
	return spreadsheet.Int(version)
}

func usageRow(w *spreadsheet.Writer, r *usage.Record, currency string, provider bool) {
	u := &r.Usage
	cells := append(make([]any, 0, len(usageHeader)+len(providerHeader)),
		r.RequestID.String(),
		r.AccountID.String(),
		r.KeyID.String(),
		r.ProjectName(),
		r.Model,
		r.Format,
		r.Provider,
		r.Route,
		r.Credential,
		r.ProviderRequestID,
		string(r.Status),
		spreadsheet.Int(int64(r.HTTPStatus)),
		spreadsheet.Bool(r.Stream),
		spreadsheet.Time(r.StartedAt),
		spreadsheet.Time(r.FinishedAt),
		spreadsheet.Time(r.SettledAt),
		spreadsheet.Int(r.FirstByteMS),
		r.Rule,
		spreadsheet.Bool(r.Estimated),
		r.Doubt,
		spreadsheet.Int(r.PriceVersion),
		spreadsheet.Raw(r.PriceMultiplier.String()),
		spreadsheet.Raw(r.Cost.String()),
		spreadsheet.Raw(r.Reservation.String()),
		currency,
		r.VideoJob,
		spreadsheet.Int(int64(r.FailedCalls())),
	)
	for _, count := range u.Counts() {
		cells = append(cells, spreadsheet.Int(*count))
	}

	second := &u.Secondary
	cells = append(
		cells,
		u.Size,
		u.Quality,
		u.ServiceTier,
		second.Kind,
		second.Model,
		spreadsheet.Int(second.Input),
		spreadsheet.Int(second.CachedInput),
		spreadsheet.Int(second.CacheWrite5m),
		spreadsheet.Int(second.CacheWrite1h),
		spreadsheet.Int(second.ImageIn),
		spreadsheet.Int(second.Output),
		spreadsheet.Int(second.Reasoning),
		spreadsheet.Int(second.ImageOut),
		spreadsheet.Int(second.Images),
	)
	if provider {
		cells = append(cells, providerCell(r), versionCell(r.ProviderPriceVersion), failedCell(r))
	}

	w.Row(cells...)
}
