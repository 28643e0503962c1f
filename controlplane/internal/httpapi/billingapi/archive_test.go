package billingapi_test

import (
	"net/http"
	"testing"
	"time"

	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/usagestore"
)

func TestUsageMonths(t *testing.T) {
	t.Parallel()
	b := start(t)
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month()-3, 1, 0, 0, 0, 0, time.UTC)
	_, err := b.DB.Pool().Exec(t.Context(), "select ensure_usage_partitions($1, now())", month)
	servertest.Check(t, err)
	early, err := servertest.Answered(b.API.MarkUsageMonthExported(t.Context(), month.Format("2006-01"), nil))
	servertest.Check(t, err)
	servertest.Problem(t, early.Problem, http.StatusConflict, "month_not_closed")
	wrong, err := servertest.Answered(b.API.MarkUsageMonthExported(t.Context(), "2026-13", nil))
	servertest.Check(t, err)
	servertest.Problem(t, wrong.Problem, http.StatusBadRequest, "invalid_input")

	servertest.Check(t, usagestore.NewArchive(b.DB).CloseBefore(t.Context(), month.AddDate(0, 1, 0)))
	marked, err := servertest.Answered(b.API.MarkUsageMonthExported(t.Context(), month.Format("2006-01"), nil))
	servertest.Check(t, err)
	if marked.StatusCode != http.StatusNoContent {
		t.Fatalf("mark: %s", marked.Body)
	}
	r, err := servertest.Answered(b.API.ListUsageMonths(t.Context(), nil))
	servertest.Check(t, err)
	if r.StatusCode != http.StatusOK || len(r.Value.Data) != 1 {
		t.Fatalf("months: %s", r.Body)
	}
	got := r.Value.Data[0]
	if got.Month != month.Format("2006-01") || got.ExportedAt == nil || got.ExportedBy == nil || got.DroppedAt != nil || got.Cost != "0.00" {
		t.Errorf("month: %s", r.Body)
	}
}
