package accountstore_test

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/accountstore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/search"
)

// manyAccounts adds 100,000 accounts with a key and a payment each to those that FillUsage has made.
var manyAccounts = []string{
	`insert into accounts (id, external_id, name, max_concurrent_requests, revision)
		select ('00000000-0000-7000-a000-' || lpad(to_hex(a), 12, '0'))::uuid, 'customer-' || a,
			(array['Northwind', 'Lumen', 'Oakline', 'Harbour', 'Quarry', 'Tidewater'])[1 + a % 6] || ' ' || md5(a::text) || ' '
			|| (array['Robotics', 'Health', 'Studio', 'Analytics', 'Labs', 'Travel'])[1 + a / 7 % 6] || ' ' || a, 1, 1
		from generate_series(1, 100000) a`,
	`insert into api_keys (id, account_id, name, lookup_hash, revision)
		select ('00000000-0000-7000-b000-' || lpad(to_hex(a), 12, '0'))::uuid, ('00000000-0000-7000-a000-' || lpad(to_hex(a), 12, '0'))::uuid,
			'service ' || md5((-a)::text) || ' ' || a, sha256(int4send(-a)), 1
		from generate_series(1, 100000) a`,
	`insert into ledger_transactions (id, kind, reference, actor)
		select ('01900000-0000-7000-a000-' || lpad(to_hex(a), 12, '0'))::uuid, 'payment', 'invoice-' || a, 'bench'
		from generate_series(1, 100000) a`,
	`insert into ledger_entries (transaction_id, line, kind, ledger_account, account_id, amount)
		select ('01900000-0000-7000-a000-' || lpad(to_hex(a), 12, '0'))::uuid, line, 'payment', case line when 1 then 'customer' else 'funding' end,
			case line when 1 then ('00000000-0000-7000-a000-' || lpad(to_hex(a), 12, '0'))::uuid end, case line when 1 then 1 else -1 end
		from generate_series(1, 100000) a, generate_series(1, 2) line`,
	"vacuum analyze accounts", "vacuum analyze api_keys", "vacuum analyze ledger_transactions",
}

// BenchmarkSearch measures what a person may type into the search of the console, among 100,000 accounts and as many usage
// records as the variable says. The slowest are texts of which there are none, as everything is looked at.
func BenchmarkSearch(b *testing.B) {
	rows, err := strconv.ParseInt(os.Getenv(pgtest.BenchRows), 10, 64)
	if err != nil {
		b.Skipf("%s is not set: it says how many rows to write", pgtest.BenchRows)
	}
	const target = 150 * time.Millisecond
	db := postgres.Wrap(pgtest.New(b))
	pgtest.FillUsage(b, db.Pool(), rows)
	for _, sql := range manyAccounts {
		if _, err := db.Pool().Exec(b.Context(), sql); err != nil {
			b.Fatalf("%.60s: %v", sql, err)
		}
	}
	found := search.NewService(accountstore.NewSearch(db), nil)
	for name, text := range map[string]string{
		"beginning":       "northwind",
		"middle":          "robotics",
		"one-name":        "travel 77777",
		"nothing":         "there is no such name",
		"ending-of-id":    "00ffee",
		"ending-none":     "deadbeef",
		"reference":       "invoice-54321",
		"reference-none":  "invoice-0",
		"one-character":   "z",
		"external-id":     "customer-99999",
		"percent-and-dot": "50%_.",
	} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			n := 0
			for b.Loop() {
				began := time.Now()
				results, err := found.Find(b.Context(), text)
				if err != nil {
					b.Fatal(err)
				}
				took, n = append(took, time.Since(began)), len(results)
			}
			slices.Sort(took)
			p95 := took[len(took)*95/100]
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(p95.Microseconds())/1000, "ms-p95")
			b.ReportMetric(float64(n), "results")
			if p95 > target {
				b.Errorf("95 of 100 take up to %s; want at most %s", p95, target)
			}
		})
	}
}
