package billingapi

import (
	"context"
	"encoding/hex"
	"time"

	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
)

// monthForm is how a month is written.
const monthForm = "2006-01"

func (h *Handlers) ListUsageMonths(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListUsageMonthsRequestObject,
) (gen.ListUsageMonthsResponseObject, error) {
	months, err := h.Archive.Months(ctx)
	if err != nil {
		return nil, err
	}
	months, cursor, err := convert.Paginate(
		r.Params.Limit,
		r.Params.Cursor,
		months,
		func(m *archive.Month) []byte { return []byte(m.Month.Format(monthForm)) },
	)
	return gen.ListUsageMonths200JSONResponse{Data: convert.All(months, monthView), NextCursor: cursor}, err
}

func (h *Handlers) MarkUsageMonthExported(
	ctx context.Context,
	_ *gen.Call,
	r gen.MarkUsageMonthExportedRequestObject,
) (gen.MarkUsageMonthExportedResponseObject, error) {
	month, err := time.Parse(monthForm, r.Month)
	if err != nil || month.Year() < 1 {
		return nil, validation.New("month", "must be a month such as 2026-10")
	}
	if err := h.Archive.MarkExported(ctx, month); err != nil {
		return nil, err
	}
	return gen.MarkUsageMonthExported204Response{}, nil
}

func monthView(m *archive.Month) gen.UsageMonth {
	return gen.UsageMonth{
		Month:      m.Month.Format(monthForm),
		Records:    m.Records,
		Cost:       m.Cost.String(),
		ClosedAt:   m.ClosedAt,
		ExportedAt: convert.OptionalTime(m.ExportedAt),
		ExportedBy: convert.Optional(m.ExportedBy),
		File:       convert.Optional(m.File),
		Sha256:     convert.Optional(hex.EncodeToString(m.SHA256)),
		DroppedAt:  convert.OptionalTime(m.DroppedAt),
	}
}
