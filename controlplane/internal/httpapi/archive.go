package httpapi

import (
	"context"
	"encoding/hex"
	"time"

	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
)

// monthForm is how a month is written.
const monthForm = "2006-01"

// ListUsageMonths implements gen.StrictServerInterface.
func (s *server) ListUsageMonths(ctx context.Context, r gen.ListUsageMonthsRequestObject) (gen.ListUsageMonthsResponseObject, error) {
	months, err := s.cfg.Archive.Months(ctx)
	if err != nil {
		return nil, err
	}
	months, cursor, err := cut(r.Params.Limit, r.Params.Cursor, months, func(m *archive.Month) []byte { return []byte(m.Month.Format(monthForm)) })
	return gen.ListUsageMonths200JSONResponse{Data: all(months, monthView), NextCursor: cursor}, err
}

// MarkUsageMonthExported implements gen.StrictServerInterface.
func (s *server) MarkUsageMonthExported(ctx context.Context, r gen.MarkUsageMonthExportedRequestObject) (gen.MarkUsageMonthExportedResponseObject, error) {
	month, err := time.Parse(monthForm, r.Month)
	if err != nil || month.Year() < 1 {
		return nil, validation.New("month", "must be a month such as 2026-10")
	}
	if err := s.cfg.Archive.MarkExported(ctx, month); err != nil {
		return nil, err
	}
	return gen.MarkUsageMonthExported204Response{}, nil
}

func monthView(m *archive.Month) gen.UsageMonth {
	return gen.UsageMonth{
		Month: m.Month.Format(monthForm), Records: m.Records, Cost: m.Cost.String(), ClosedAt: m.ClosedAt, ExportedAt: presentTime(m.ExportedAt),
		ExportedBy: present(m.ExportedBy), File: present(m.File), Sha256: present(hex.EncodeToString(m.SHA256)), DroppedAt: presentTime(m.DroppedAt),
	}
}

// presentTime is a time, or nil for the zero time.
func presentTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
