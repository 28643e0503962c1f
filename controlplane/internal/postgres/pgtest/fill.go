package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The shape of the rows: a hundred days of a thousand accounts with two keys
// each, twenty models of which an account uses three, the first account busier
// than the others, and one model that is rare. A token costs 100 billionths, as by a price of 0.10 for a million.
const usageFill = `
	insert into usage_records (request_id, session_id, seq, account_id, key_id, model, format, provider, route, status, http_status,
		started_at, finished_at, usage, rule, price_version, cost, reservation)
	select (left(uuid_floor(at)::text, 14) || '7' || lpad(to_hex(g % 4096), 3, '0') || '-8000-' || lpad(to_hex(g), 12, '0'))::uuid, 1, g,
		('00000000-0000-7000-8000-' || lpad(to_hex(a), 12, '0'))::uuid,
		('00000000-0000-7000-9000-' || lpad(to_hex(a * 2 + g % 2), 12, '0'))::uuid,
		case when g % 50000 = 0 then 'rare' else 'model-' || (a + g % 3) % 20 end,
		case when g % 10 = 0 then 'messages' else 'chat' end, case when g % 4000000 = 17 then 'backup' else 'openai' end,
		case when g % 3 = 0 then 'rte_2' else 'rte_1' end,
		case when g % 500 = 0 then 'failed' else 'completed' end, 200, at as started_at, at as finished_at,
		json_build_object('input', 10 + g % 10), 'reported', 1, 100 * (10 + g % 10), 2000
	from generate_series(1, $1::bigint) as g,
		lateral (select (case when g % 20 = 0 then 0 else hashint8(g) & 1023 end) % 1000 as a,
			now() - interval '100 days' * (1 - g::float8 / $1)) as x(a, at)`

// BenchRows names the environment variable with the number of usage records that benchmarks write.
const BenchRows = "MGW_BENCH_ROWS"

// FillUsage writes a thousand accounts with two keys and some money each, and usage records in the order of settlement, by time, in
// one statement, and the roll-ups after them.
func FillUsage(t testing.TB, pool *pgxpool.Pool, rows int64) {
	t.Helper()
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{"select ensure_usage_partitions(now() - interval '101 days', now())", nil},
		{`insert into accounts (id, name, max_concurrent_requests, revision)
			select ('00000000-0000-7000-8000-' || lpad(to_hex(a), 12, '0'))::uuid, 'a', 1, 1 from generate_series(0, 999) a`, nil},
		{`insert into api_keys (id, account_id, name, lookup_hash, revision)
			select ('00000000-0000-7000-9000-' || lpad(to_hex(k), 12, '0'))::uuid,
				('00000000-0000-7000-8000-' || lpad(to_hex(k / 2), 12, '0'))::uuid,
				'k', sha256(int4send(k)), 1 from generate_series(0, 1999) k`, nil},
		{`insert into pools (account_id, kind, total, free) select id, 1, 1000000000000, 1000000000000 from accounts`, nil},
		{`insert into pools (account_id, kind, total, free) select id, 3, 1, 1 from accounts`, nil},
		{`insert into pools (account_id, kind, key_id, unlimited) select account_id, 2, id, true from api_keys`, nil},
		{usageFill, []any{rows}},
		{`insert into usage_daily
			select account_id, uuid_day(request_id) as booked_on, uuid_day(request_id) as used_on, key_id,
				'00000000-0000-0000-0000-000000000000'::uuid as project_id, model, '', count(*), 0, 0,
				sum((usage ->> 'input')::bigint), 0, 0, 0,
				0, 0, 0, 0, 0, 0, 0, 0, sum(cost)
			from usage_records group by 1, 2, 3, 4, 5, 6 order by used_on`, nil},
		{`insert into usage_daily_models
			select used_on, model, '', 0, sum(requests), 0, 0, sum(input), sum(cached_input), 0, sum(output),
				0, 0, 0, 0, 0, 0, 0, 0, sum(cost)
			from usage_daily group by 1, 2`, nil},
		{`insert into usage_weekly
			select used_on - (extract(isodow from used_on)::integer - 1), account_id, key_id, project_id, model, '',
				sum(requests), 0, 0, sum(input), sum(cached_input), 0, sum(output), 0, 0, 0, 0, 0, 0, 0, 0, sum(cost)
			from usage_daily group by 1, 2, 3, 4, 5 order by 1`, nil},
		{"vacuum analyze usage_daily_models", nil},
		{"vacuum analyze usage_weekly", nil},
		{"vacuum analyze usage_records", nil},
		{"vacuum analyze usage_daily", nil},
	} {
		if _, err := pool.Exec(t.Context(), step.sql, step.args...); err != nil {
			t.Fatalf("%.60s: %v", step.sql, err)
		}
	}

	var records, totals int64
	err := pool.QueryRow(t.Context(), "select (select sum(requests)::bigint from usage_daily), (select count(*) from usage_daily)").
		Scan(&records, &totals)
	if err != nil || records != rows {
		t.Fatalf("%d rows are added up, %v; want %d", records, err, rows)
	}

	t.Logf("%d records, %d totals", records, totals)
}
