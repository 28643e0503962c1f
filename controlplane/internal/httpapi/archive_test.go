package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres"
)

func TestUsageMonths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month()-3, 1, 0, 0, 0, 0, time.UTC)
	_, err := b.db.Pool().Exec(t.Context(), "select ensure_usage_partitions($1, now())", month)
	check(t, err)
	early, err := b.api.MarkUsageMonthExportedWithResponse(t.Context(), month.Format("2006-01"), nil)
	check(t, err)
	problem(t, early.ApplicationProblemJSONDefault, http.StatusConflict, "month_not_closed")
	wrong, err := b.api.MarkUsageMonthExportedWithResponse(t.Context(), "2026-13", nil)
	check(t, err)
	problem(t, wrong.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")

	check(t, postgres.ArchiveStore{DB: b.db}.CloseBefore(t.Context(), month.AddDate(0, 1, 0)))
	marked, err := b.api.MarkUsageMonthExportedWithResponse(t.Context(), month.Format("2006-01"), nil)
	check(t, err)
	if marked.StatusCode() != http.StatusNoContent {
		t.Fatalf("mark: %s", marked.Body)
	}
	r, err := b.api.ListUsageMonthsWithResponse(t.Context(), nil)
	check(t, err)
	if r.JSON200 == nil || len(r.JSON200.Data) != 1 {
		t.Fatalf("months: %s", r.Body)
	}
	got := r.JSON200.Data[0]
	if got.Month != month.Format("2006-01") || got.ExportedAt == nil || got.ExportedBy == nil || got.DroppedAt != nil || got.Cost != "0.00" {
		t.Errorf("month: %s", r.Body)
	}
}
