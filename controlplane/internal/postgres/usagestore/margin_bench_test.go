package usagestore

import (
	"os"
	"strconv"
	"testing"
	"time"

	"modelgateway/controlplane/internal/margin"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
)

// BenchmarkMargin measures reports over a day with the number of requests in the variable.
func BenchmarkMargin(b *testing.B) {
	rows, err := strconv.ParseInt(os.Getenv(pgtest.BenchRows), 10, 64)
	if err != nil {
		b.Skipf("%s is not set: it says how many rows to write", pgtest.BenchRows)
	}
	db := postgres.Wrap(pgtest.New(b))
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	for _, sql := range []string{`
		insert into usage_records (request_id, session_id, seq, account_id, key_id, model, format, provider, route, credential, status, started_at,
			finished_at, usage, rule, price_version, cost, reservation, provider_cost, attempts)
		select (left(uuid_floor(at)::text, 14) || '7' || lpad(to_hex(g % 4096), 3, '0') || '-8000-' || lpad(to_hex(g), 12, '0'))::uuid, 1, g,
			('00000000-0000-7000-8000-' || lpad(to_hex(g % 1000), 12, '0'))::uuid, ('00000000-0000-7000-9000-' || lpad(to_hex(g % 2000), 12, '0'))::uuid,
			'model-' || g % 20, 'chat', 'prv_' || g % 4, 'rte_' || g % 30, 'main', 'completed', at, at as finished_at,
			json_build_object('input', 10 + g % 10, 'output', 300), 'reported', 1, 100 + g % 10, 2000, case when g % 50 > 0 then 90 + g % 20 end,
			case when g % 20 = 0 then '[{"route": "rte_1", "provider": "prv_1", "usage": {"input": 10}, "provider_cost": 12}]'::jsonb end
		from generate_series(1, $1::bigint) as g, lateral (select $2::timestamptz + interval '1 day' * (g::float8 - 1) / $1 as at) x`} {
		if _, err := db.Pool().Exec(b.Context(), sql, rows, day); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := db.Pool().Exec(b.Context(), "vacuum analyze usage_records"); err != nil {
		b.Fatal(err)
	}
	store := NewUsage(db)
	for _, by := range margin.All {
		b.Run(string(by), func(b *testing.B) {
			for b.Loop() {
				report, err := store.Margin(b.Context(), &margin.Query{By: by, From: day, To: day.AddDate(0, 0, 1), Limit: 101})
				if err != nil || report.Total.Requests != rows || len(report.Lines) == 0 {
					b.Fatal(report.Total, err)
				}
			}
		})
	}
}
