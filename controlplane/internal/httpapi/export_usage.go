package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/table"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
)

type usageExport struct{ export[usage.Record] }

// VisitExportUsageResponse implements gen.ExportUsageResponseObject.
func (e *usageExport) VisitExportUsageResponse(w http.ResponseWriter) error { return e.write(w) }

// ExportUsage implements gen.StrictServerInterface.
func (s *server) ExportUsage(ctx context.Context, r gen.ExportUsageRequestObject) (gen.ExportUsageResponseObject, error) {
	csv, err := exportFormat(r.Params.Format, r.Params.Accept)
	if err != nil {
		return nil, err
	}
	var invalid validation.Errors
	q := usage.ExportQuery{Model: orEmpty(r.Params.Model), From: valueOf(r.Params.From), To: until(r.Params.To), Limit: exportPage}
	q.AccountID, q.KeyID = readOwner(&invalid, r.Params.AccountID, r.Params.KeyID)
	checkSpan(&invalid, valueOf(r.Params.From), valueOf(r.Params.To))
	if r.Params.Cursor != nil && *r.Params.Cursor != "" {
		if q.After, err = usage.ParseRequestID(*r.Params.Cursor); err != nil {
			invalid.Add("cursor", "must be the id of the last request that arrived")
		}
	}
	if err := invalid.Err(); err != nil {
		return nil, err
	}
	currency, err := s.cfg.Catalog.Currency(ctx)
	if err != nil {
		return nil, err
	}
	e := &usageExport{export[usage.Record]{
		ctx: ctx, name: "usage", csv: csv, header: usageHeader,
		row:    func(w *table.Writer, r *usage.Record) { usageRow(w, r, currency) },
		view:   func(r *usage.Record) (any, error) { return usageView(r) },
		cursor: func(r *usage.Record) string { return r.RequestID.String() },
		page: func(ctx context.Context, after *usage.Record) ([]usage.Record, error) {
			if after != nil {
				q.After = after.RequestID
			}
			return s.cfg.Usage.Export(ctx, q)
		},
	}}
	return e, e.begin()
}

// EncodeUsage is a record as a line of an export.
func EncodeUsage(r *usage.Record) ([]byte, error) {
	view, err := usageView(r)
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(view)
	if err != nil {
		return nil, fmt.Errorf("httpapi: encode usage of %s: %w", r.RequestID, err)
	}
	return line, nil
}

// usageHeader names the columns of usageRow.
var usageHeader = []any{
	"request_id", "account_id", "key_id", "model", "format", "provider", "route", "provider_request_id", "status", "http_status", "stream",
	"started_at", "finished_at", "settled_at", "first_byte_ms", "rule", "estimated", "price_version", "price_multiplier", "cost", "reserve",
	"currency", "video_job", "input", "cached_input", "cache_write_5m", "cache_write_1h", "cache_write_30m", "cache_write_12h",
	"cache_write_other", "output", "reasoning", "audio_in", "audio_out", "image_in", "image_out", "images", "seconds",
	"server_tool_requests", "size", "quality",
}

func usageRow(w *table.Writer, r *usage.Record, currency string) {
	u := &r.Usage
	w.Row(
		r.RequestID.String(), r.AccountID.String(), r.KeyID.String(), r.Model, r.Format, r.Provider, r.Route, r.ProviderRequestID,
		string(r.Status), table.Int(int64(r.HTTPStatus)), table.Bool(r.Stream), table.Time(r.StartedAt), table.Time(r.FinishedAt),
		table.Time(r.SettledAt), table.Int(r.FirstByteMS), r.Rule, table.Bool(r.Estimated), table.Int(r.PriceVersion),
		table.Plain(r.PriceMultiplier.String()), table.Plain(r.Cost.String()), table.Plain(r.Reserve.String()), currency, r.VideoJob,
		table.Int(u.Input), table.Int(u.CachedInput), table.Int(u.CacheWrite5m), table.Int(u.CacheWrite1h), table.Int(u.CacheWrite30m),
		table.Int(u.CacheWrite12h), table.Int(u.CacheWriteOther), table.Int(u.Output), table.Int(u.Reasoning), table.Int(u.AudioIn),
		table.Int(u.AudioOut), table.Int(u.ImageIn), table.Int(u.ImageOut), table.Int(u.Images), table.Int(u.Seconds),
		table.Int(u.ServerToolRequests), u.Size, u.Quality,
	)
}
