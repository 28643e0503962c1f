package usagestore_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// BenchmarkUsageReads measures the usage queries of the admin API in a table with
// the number of rows in the variable. It fails if the slowest of ten runs takes
// longer than an operator would wait.
func BenchmarkUsageReads(b *testing.B) {
	rows, err := strconv.ParseInt(os.Getenv(pgtest.BenchRows), 10, 64)
	if err != nil {
		b.Skipf("%s is not set: it says how many rows to write", pgtest.BenchRows)
	}
	const target = 150 * time.Millisecond
	// Days of another zone are summed up from the records, 9 µs each on two busy cores. The busy account has 15 in a thousand of all.
	const zoneTarget = time.Second
	db := postgres.Wrap(pgtest.New(b))
	pgtest.FillUsage(b, db.Pool(), rows)
	now := time.Now()
	records, statements := usage.NewService(usagestore.NewUsage(db)), statement.NewService(moneystore.NewStatements(db))
	busy, quiet := account.ID(ident.UUID{6: 0x70, 8: 0x80}), account.ID(ident.UUID{6: 0x70, 8: 0x80, 15: 77})
	busyKey := key.ID(ident.UUID{6: 0x70, 8: 0x90})
	middle, err := records.List(b.Context(), usage.Query{To: now.AddDate(0, 0, -50), Limit: 1})
	if err != nil || len(middle.Records) == 0 {
		b.Fatal(len(middle.Records), err)
	}
	list := func(q usage.Query) func(context.Context) (int, error) {
		q.Limit = 51
		return func(ctx context.Context) (int, error) {
			found, err := records.List(ctx, q)
			return len(found.Records), err
		}
	}
	export := func(q usage.Query) func(context.Context) (int, error) {
		q.Limit = 1000
		return func(ctx context.Context) (int, error) {
			found, err := records.Export(ctx, q)
			return len(found), err
		}
	}
	total := func(q usage.TotalQuery) func(context.Context) (int, error) {
		q.Limit = 501
		return func(ctx context.Context) (int, error) {
			found, err := records.Totals(ctx, q)
			return len(found), err
		}
	}
	week := now.AddDate(0, 0, -7)
	monday := now.AddDate(0, 0, -(int(now.Weekday())+6)%7)
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		b.Fatal(err)
	}
	days := func(ago int) time.Time { return now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -ago) }
	for _, read := range []struct {
		name string
		read func(context.Context) (int, error)
	}{
		{"list/first", list(usage.Query{})},
		{"list/middle", list(usage.Query{Before: middle.Records[0].RequestID})},
		{"list/time", list(usage.Query{From: now.AddDate(0, 0, -60), To: now.AddDate(0, 0, -59)})},
		{"list/account", list(usage.Query{AccountID: quiet})},
		{"list/busy-account-middle", list(usage.Query{AccountID: busy, Before: middle.Records[0].RequestID})},
		{"list/key", list(usage.Query{KeyID: busyKey})},
		{"list/model", list(usage.Query{Model: "model-7"})},
		{"list/rare-model", list(usage.Query{Model: "rare"})},
		{"list/account-and-model", list(usage.Query{AccountID: quiet, Model: "model-18"})},
		{"list/account-and-rare-model", list(usage.Query{AccountID: quiet, Model: "rare"})},
		{"list/key-model-time", list(usage.Query{KeyID: busyKey, Model: "model-1", From: now.AddDate(0, 0, -60), To: week})},
		{"list/status-failed", list(usage.Query{Status: event.Failed})},
		{"list/status-revoked-none", list(usage.Query{Status: event.Revoked})},
		{"list/estimated-none", list(usage.Query{Estimated: new(true)})},
		{"list/provider-frequent", list(usage.Query{Provider: "openai"})},
		{"list/provider-rare", list(usage.Query{Provider: "backup"})},
		{"list/provider-rare-middle", list(usage.Query{Provider: "backup", Before: middle.Records[0].RequestID})},
		{"list/route-none", list(usage.Query{Route: "none"})},
		{"list/format-stream-none", list(usage.Query{Format: "messages", Stream: new(true)})},
		{"list/min-cost-none", list(usage.Query{MinCost: money.Unit})},
		{"list/busy-account-provider-none", list(usage.Query{AccountID: busy, Provider: "none"})},
		{"list/busy-account-status-failed", list(usage.Query{AccountID: busy, Status: event.Failed})},
		{"list/busy-key-route-none", list(usage.Query{KeyID: busyKey, Route: "none"})},
		{"list/model-provider-none", list(usage.Query{Model: "model-7", Provider: "none"})},
		{"list/model-failed-30-days", list(usage.Query{Model: "model-7", Status: event.Failed, From: now.AddDate(0, 0, -30)})},
		{"list/prefix", list(usage.Query{Lowest: middle.Records[0].RequestID, Highest: middle.Records[0].RequestID})},
		{"export/first", export(usage.Query{})},
		{"export/middle", export(usage.Query{After: middle.Records[0].RequestID})},
		{"export/account", export(usage.Query{AccountID: quiet})},
		{"export/busy-account-middle", export(usage.Query{AccountID: busy, After: middle.Records[0].RequestID})},
		{"export/model", export(usage.Query{Model: "model-7"})},
		{"export/status-failed", export(usage.Query{Status: event.Failed})},
		{"totals/all", total(usage.TotalQuery{})},
		{"totals/day", total(usage.TotalQuery{By: usage.Group{Day: true}})},
		{"totals/model", total(usage.TotalQuery{By: usage.Group{Model: true}})},
		{"totals/account", total(usage.TotalQuery{By: usage.Group{Account: true}})},
		{"totals/key", total(usage.TotalQuery{By: usage.Group{Key: true}})},
		{"totals/account-and-model", total(usage.TotalQuery{By: usage.Group{Account: true, Model: true}})},
		{"totals/key-and-model", total(usage.TotalQuery{By: usage.Group{Account: true, Key: true, Model: true}})},
		{"totals/key-of-model", total(usage.TotalQuery{By: usage.Group{Key: true}, Model: "model-7"})},
		{"totals/30-days-by-key", total(usage.TotalQuery{By: usage.Group{Key: true}, From: now.AddDate(0, 0, -30)})},
		{"totals/part-by-key", total(usage.TotalQuery{By: usage.Group{Key: true}, From: monday.AddDate(0, 0, -69), To: monday.AddDate(0, 0, -1)})},
		{"totals/day-and-account", total(usage.TotalQuery{By: usage.Group{Day: true, Account: true}})},
		{"totals/day-and-key", total(usage.TotalQuery{By: usage.Group{Day: true, Key: true}})},
		{"totals/everything", total(usage.TotalQuery{By: usage.Group{Day: true, Account: true, Key: true, Model: true}})},
		{"totals/everything-middle", total(usage.TotalQuery{By: usage.Group{Day: true, Account: true, Key: true, Model: true}, After: &usage.Total{
			Day: now.AddDate(0, 0, -50).UTC().Truncate(24 * time.Hour), AccountID: busy,
		}})},
		{"totals/day-and-key-of-rare-model", total(usage.TotalQuery{By: usage.Group{Day: true, Key: true}, Model: "rare"})},
		{"totals/day-and-model", total(usage.TotalQuery{By: usage.Group{Day: true, Model: true}})},
		{"totals/week-by-everything", total(usage.TotalQuery{By: usage.Group{Day: true, Account: true, Key: true, Model: true}, From: week})},
		{"totals/of-account", total(usage.TotalQuery{AccountID: quiet, By: usage.Group{Day: true, Key: true, Model: true}})},
		{"totals/of-key", total(usage.TotalQuery{KeyID: busyKey, By: usage.Group{Day: true}})},
		{"totals/31-days-of-another-zone-of-busy-account", total(usage.TotalQuery{AccountID: busy, Zone: zone, From: days(31), To: days(0), By: usage.Group{Day: true, Key: true, Model: true}})},
		{"totals/31-days-of-another-zone-of-account", total(usage.TotalQuery{AccountID: quiet, Zone: zone, From: days(31), To: days(0), By: usage.Group{Day: true}})},
		{"totals/31-days-of-another-zone-of-model", total(usage.TotalQuery{AccountID: busy, Zone: zone, From: days(31), To: days(0), Model: "rare", By: usage.Group{Day: true}})},
		{"statement", func(ctx context.Context) (int, error) {
			s, err := statements.Make(ctx, statement.Query{
				AccountID: busy, Period: statement.Period{From: now.AddDate(0, 0, -40), To: now.AddDate(0, 0, -10)}, By: usage.Group{Day: true, Key: true, Model: true},
			})
			return len(s.Lines), err
		}},
	} {
		b.Run(read.name, func(b *testing.B) {
			var took []time.Duration
			found := 0
			for b.Loop() {
				began := time.Now()
				n, err := read.read(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				took, found = append(took, time.Since(began)), n
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-slowest")
			b.ReportMetric(float64(found), "rows")
			limit := target
			if strings.Contains(read.name, "zone-of-busy") {
				limit = zoneTarget
			}
			if median := took[len(took)/2]; median > limit {
				b.Errorf("takes %s; want at most %s", median, limit)
			}
		})
	}
}
