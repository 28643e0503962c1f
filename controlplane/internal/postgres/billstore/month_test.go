package billstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres/billstore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// record is a usage record of a month.
type record struct {
	id                   ident.UUID
	at                   time.Time
	model, route         string
	providerID           string
	cost                 money.Nano
	estimated, cancelled bool
	// credential is the name; attempts are calls that served nobody, in JSON.
	credential, attempts string
}

// month is a month of requests, and the bill of it with seeded differences.
type month struct {
	first   time.Time
	records []record
	rows    strings.Builder
	seeded  map[providerbill.Kind]providerbill.Part
}

func (m *month) bill(r *record, id string, amount money.Nano) {
	fmt.Fprintf(&m.rows, "%s,%s,%s,%s,USD\n", r.at.Format(time.RFC3339), r.model, id, amount)
}

// seed notes a difference that the bill has.
func (m *month) seed(kind providerbill.Kind, amount money.Nano) {
	part := m.seeded[kind]
	part.Kind = kind
	part.Count++
	if amount > 0 {
		part.Over += amount
	} else {
		part.Under -= amount
	}
	m.seeded[kind] = part
}

var seven = []providerbill.Kind{
	providerbill.Rounding, providerbill.OurEstimate, providerbill.CancelledStream, providerbill.UnknownCall,
	providerbill.NotBilled, providerbill.BilledTwice, providerbill.Price,
}

// newMonth returns a month with n requests, of which about one in share is billed otherwise than it was recorded, in seven ways.
func newMonth(seed uint64, n, share int) *month {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &month{first: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -32), seeded: map[providerbill.Kind]providerbill.Part{}}
	m.rows.WriteString("day,model,request_id,amount,currency\n")
	for i := range n {
		// The last hour of the bill is left out: what lacks there may be on the next bill.
		at := m.first.Add(time.Duration(r.Int64N(int64(30*24*time.Hour - 2*time.Hour))))
		if i == n-1 {
			at = m.first.AddDate(0, 0, 30).Add(-time.Hour)
		}
		k := r.IntN(5)
		rec := record{
			id:         ident.NewAt(at),
			at:         at,
			model:      fmt.Sprint("demo-", k, "-2026-01-01"),
			route:      fmt.Sprint("rte-", k),
			providerID: fmt.Sprint("id-", i),
			cost:       1000 * money.Nano(1000+r.IntN(1_000_000)),
			estimated:  r.IntN(100) == 0,
			cancelled:  r.IntN(100) == 0,
		}
		if i == n-1 || r.IntN(share) > 0 {
			m.bill(&rec, rec.providerID, rec.cost)
		} else {
			m.differ(r, &rec)
		}
		m.records = append(m.records, rec)
	}
	return m
}

// differ bills a request otherwise than it is recorded.
func (m *month) differ(r *rand.Rand, rec *record) {
	rec.estimated, rec.cancelled = false, false
	cost := rec.cost
	switch kind := seven[r.IntN(len(seven))]; kind {
	case providerbill.Rounding:
		rec.cost += 400 // the bill has six places
		m.bill(rec, rec.providerID, cost)
		m.seed(kind, -400)
	case providerbill.OurEstimate:
		rec.estimated = true
		m.bill(rec, rec.providerID, cost*2)
		m.seed(kind, cost)
	case providerbill.CancelledStream:
		rec.cancelled = true
		billed := cost / 1000 / 2 * 1000
		m.bill(rec, rec.providerID, billed)
		m.seed(kind, billed-cost)
	case providerbill.UnknownCall:
		m.bill(rec, rec.providerID, cost)
		m.bill(rec, "other-"+rec.providerID, cost)
		m.seed(kind, cost)
	case providerbill.NotBilled:
		m.seed(kind, -cost)
	case providerbill.BilledTwice:
		m.bill(rec, rec.providerID, cost)
		m.bill(rec, rec.providerID, cost)
		m.seed(kind, cost)
	case providerbill.Price:
		m.bill(rec, rec.providerID, cost+1000)
		m.seed(kind, 1000)
	}
}

// world is a database with a catalog, and the service over it.
type world struct {
	*storetest.World
	bills *providerbill.Service
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{World: storetest.New(t)}
	w.bills = providerbill.NewService(billstore.New(w.Replica()))
	w.Exec(`insert into settings (name, value) values ('catalog', '{"currency": "USD"}')`)
	w.Exec(`insert into providers (id, name, spec, revision) values ('maker', 'maker', '{}', 1), ('other', 'other', '{}', 1)`)
	w.Exec(`insert into models (id, type, enabled, public, spec, revision)
		select 'm-' || i, 'text', true as enabled, true as public, '{}', 1 from generate_series(0, 4) i`)
	w.Exec(`insert into routes (id, model_id, provider_id, spec)
		select 'rte-' || i, 'm-' || i, 'maker', json_build_object('upstream_model', 'demo-' || i) from generate_series(0, 4) i`)
	return w
}

// insert writes usage records of a provider.
func (w *world) insert(provider string, records ...record) {
	w.T.Helper()
	columns := []string{
		"request_id", "session_id", "seq", "account_id", "key_id", "model", "format", "provider", "route", "provider_request_id", "status",
		"started_at", "finished_at", "usage", "rule", "estimated", "price_version", "cost", "reservation", "provider_cost",
		"credential", "attempts",
	}
	_, err := w.SQL.CopyFrom(w.T.Context(), pgx.Identifier{"usage_records"}, columns, pgx.CopyFromSlice(len(records), func(i int) ([]any, error) {
		r := &records[i]
		status := "completed"
		if r.cancelled {
			status = "client_gone"
		}
		cost := &r.cost
		if r.cost < 0 {
			cost = nil // unknown
		}
		var attempts *string
		if r.attempts != "" {
			attempts = &r.attempts
		}
		return []any{
			r.id, 1, i,
			ident.UUID{1},
			ident.UUID{2},
			"m", "chat", provider, r.route, r.providerID, status,
			r.at, r.at, `{"input": 10, "cached_input": 5, "output": 5}`, "reported", r.estimated, 1, int64(1), int64(1), (*int64)(cost), r.credential, attempts,
		}, nil
	}))
	if err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) importFile(text string, change func(*providerbill.Options)) (*providerbill.Bill, bool, error) {
	w.T.Helper()
	options := &providerbill.Options{Name: "bill.csv", Provider: "maker", TimeZone: "UTC"}
	if change != nil {
		change(options)
	}
	return w.bills.Import(w.T.Context(), ident.New(), strings.NewReader(text), options, "operator")
}

// mustImport imports a new file.
func (w *world) mustImport(text string) *providerbill.Bill {
	w.T.Helper()
	bill, created, err := w.importFile(text, nil)
	if err != nil || !created {
		w.T.Fatalf("import: created %v, %v", created, err)
	}
	return bill
}

// check compares what was found with what was seeded.
func (m *month) check(t *testing.T, bill *providerbill.Bill) {
	t.Helper()
	found := map[providerbill.Kind]providerbill.Part{}
	for _, part := range bill.Comparison.Parts {
		found[part.Kind] = part
	}
	if diff := cmp.Diff(m.seeded, found); diff != "" || len(m.seeded) != len(seven) {
		t.Errorf("differences (-seeded +found):\n%s", diff)
	}
	if bill.Comparison.Calls != int64(len(m.records)) || !bill.Comparison.ByModel {
		t.Errorf("compared %+v; want %d requests by model", bill.Comparison, len(m.records))
	}
}

// Of a month of requests with a line for each, every seeded difference is found with its kind, and nothing else.
func TestEverySeededDifferenceIsFoundAndNamed(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w, m := newWorld(t), newMonth(seed, 5_000, 50)
	w.insert("maker", m.records...)
	w.insert("other", record{id: ident.NewAt(m.first), at: m.first, providerID: "id-1", cost: 1})
	bill := w.mustImport(m.rows.String())
	m.check(t, bill)

	// Each request behind the differences is the one that differs.
	counts := map[providerbill.Kind]int64{}
	differences, err := w.bills.Differences(t.Context(), bill.ID, &providerbill.DifferenceQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		behind, err := w.bills.Requests(t.Context(), bill.ID, d.Number)
		if err != nil || behind.More {
			t.Fatal(behind, err)
		}
		for _, r := range behind.Requests {
			counts[r.Kind]++
		}
	}
	for kind, part := range m.seeded {
		if counts[kind] != part.Count {
			t.Errorf("%d requests are behind %s; want %d", counts[kind], kind, part.Count)
		}
	}
}

// The same with a million requests, in the time and the memory that docs/provider-bills.md tells.
func TestMonthOfAMillionRequestsIsCompared(t *testing.T) {
	if os.Getenv("LONG") == "" {
		t.Skip("a test of the long tier; set LONG=1 to run it, as make test/long does")
	}
	w, m := newWorld(t), newMonth(1, 1_000_000, 1000)
	w.insert("maker", m.records...)
	text := m.rows.String()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	bill := w.mustImport(text)
	imported := time.Since(began)
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapSys) - int64(before.HeapSys) // less than nothing if memory was returned to the system
	t.Logf("a file of %d bytes was imported and compared in %s; the heap grew by %d bytes", len(text), imported, grown)
	m.check(t, bill)

	began = time.Now()
	if err := w.bills.Compare(t.Context(), bill.ID); err != nil {
		t.Fatal(err)
	}
	t.Logf("it was compared again in %s", time.Since(began))
	if grown > 256<<20 {
		t.Errorf("the heap grew by %d bytes; want at most 256 MiB", grown)
	}
}
