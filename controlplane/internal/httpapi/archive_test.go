package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres/moneystore"
)

func TestUsageMonths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month()-3, 1, 0, 0, 0, 0, time.UTC)
	_, err := b.db.Pool().Exec(t.Context(), "select ensure_usage_partitions($1, now())", month)
	check(t, err)
	early, err := answered(b.api.MarkUsageMonthExported(t.Context(), month.Format("2006-01"), nil))
	check(t, err)
	problem(t, early.Problem, http.StatusConflict, "month_not_closed")
	wrong, err := answered(b.api.MarkUsageMonthExported(t.Context(), "2026-13", nil))
	check(t, err)
	problem(t, wrong.Problem, http.StatusBadRequest, "invalid_input")

	check(t, moneystore.NewArchive(b.db).CloseBefore(t.Context(), month.AddDate(0, 1, 0)))
	marked, err := answered(b.api.MarkUsageMonthExported(t.Context(), month.Format("2006-01"), nil))
	check(t, err)
	if marked.StatusCode != http.StatusNoContent {
		t.Fatalf("mark: %s", marked.Body)
	}
	r, err := answered(b.api.ListUsageMonths(t.Context(), nil))
	check(t, err)
	if r.StatusCode != http.StatusOK || len(r.Value.Data) != 1 {
		t.Fatalf("months: %s", r.Body)
	}
	got := r.Value.Data[0]
	if got.Month != month.Format("2006-01") || got.ExportedAt == nil || got.ExportedBy == nil || got.DroppedAt != nil || got.Cost != "0.00" {
		t.Errorf("month: %s", r.Body)
	}
}
