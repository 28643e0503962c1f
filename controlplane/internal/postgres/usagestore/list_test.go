package usagestore

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// Any filters, page by page, select the same records as a comparison of all, in a list and in an export. A page of a list ends after the number of comparisons
// that the store allows, and the list continues after it.
func TestListsWithRandomFilters(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	store := &Usage{db, 7, 60, 40}
	insertRecords(t, db, 400)
	all, err := store.List(t.Context(), usage.Query{Limit: 1000})
	if err != nil || len(all.Records) != 400 {
		t.Fatalf("got %d records, %v; want 400", len(all.Records), err)
	}
	random := rand.New(rand.NewPCG(4, 7))
	resumed := 0
	for range 300 {
		q := randomQuery(random, all.Records)
		var want []usage.RequestID
		for i := range all.Records {
			if matches(&all.Records[i], &q) {
				want = append(want, all.Records[i].RequestID)
			}
		}
		got, early := walk(t, store, q)
		resumed += early
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%+v (-want +got):\n%s", q, diff)
		}
		slices.Reverse(want)
		if diff := cmp.Diff(want, export(t, store, q)); diff != "" {
			t.Fatalf("export of %+v (-want +got):\n%s", q, diff)
		}
	}
	if resumed == 0 {
		t.Error("no page ended early")
	}
}

// export returns all records of a query, oldest first.
func export(t *testing.T, store *Usage, q usage.Query) (found []usage.RequestID) {
	t.Helper()
	for {
		page, err := store.Export(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page {
			found = append(found, page[i].RequestID)
		}
		if len(page) < q.Limit {
			return found
		}
		q.After = found[len(found)-1]
	}
}

// walk returns all records of a query, and how many pages ended early.
func walk(t *testing.T, store *Usage, q usage.Query) (found []usage.RequestID, early int) {
	t.Helper()
	for range 500 {
		page, err := store.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Records {
			found = append(found, page.Records[i].RequestID)
		}
		switch {
		case page.Resume != usage.RequestID{}:
			early++
			q.Before = page.Resume
		case len(page.Records) == q.Limit:
			q.Before = page.Records[q.Limit-1].RequestID
		default:
			return found, early
		}
	}
	t.Fatalf("no end of %+v", q)
	return nil, 0
}

// insertRecords writes records of three accounts with two keys each.
func insertRecords(t *testing.T, db *postgres.DB, count int) {
	t.Helper()
	for _, sql := range []string{
		`insert into accounts (id, name, max_concurrent_requests, revision)
			select ('00000000-0000-7000-8000-' || lpad(to_hex(a), 12, '0'))::uuid, 'a', 1, 1 from generate_series(0, 2) a`,
		`insert into api_keys (id, account_id, name, lookup_hash, revision)
			select ('00000000-0000-7000-9000-' || lpad(to_hex(k), 12, '0'))::uuid, ('00000000-0000-7000-8000-' || lpad(to_hex(k / 2), 12, '0'))::uuid,
				'k', sha256(int4send(k)), 1 from generate_series(0, 5) k`,
	} {
		if _, err := db.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	_, err := db.Pool().Exec(t.Context(), `
		insert into usage_records (request_id, session_id, seq, account_id, key_id, model, format, provider, route, credential, status, stream, started_at,
			finished_at, usage, rule, estimated, price_version, cost, reservation)
		select (left(uuid_floor(at)::text, 14) || '7000-8000-' || lpad(to_hex(g), 12, '0'))::uuid, 1, g,
			('00000000-0000-7000-8000-' || lpad(to_hex(k / 2), 12, '0'))::uuid, ('00000000-0000-7000-9000-' || lpad(to_hex(k), 12, '0'))::uuid,
			'model-' || h % 3, case when h % 5 = 0 then 'messages' else 'chat' end, 'provider-' || h % 4, 'route-' || h % 7, 'credential-' || h % 3,
			case when h % 9 = 0 then 'failed' else 'completed' end, h % 2 = 0, at as started_at, at as finished_at, '{}', 'reported', h % 11 = 0, 1, h % 13, 2
		from generate_series(1, $1::bigint) as g,
			lateral (select now() - interval '1 day' + g * interval '1 second' as at, hashint8(g) & 1023 as h, (hashint8(g + 7) & 1023) % 6 as k) as x`, count)
	if err != nil {
		t.Fatal(err)
	}
}

func randomQuery(random *rand.Rand, all []usage.Record) usage.Query {
	of := func() *usage.Record { return &all[random.IntN(len(all))] }
	maybe := func() bool { return random.IntN(4) == 0 }
	q := usage.Query{Limit: 1 + random.IntN(30)}
	if maybe() {
		q.AccountID = of().AccountID
	}
	if maybe() {
		q.KeyID = of().KeyID
	}
	if maybe() {
		q.Model = of().Model
	}
	if maybe() {
		q.Status = of().Status
	}
	if maybe() {
		q.Provider = of().Provider
	}
	if maybe() {
		q.Route = of().Route
	}
	if maybe() {
		q.Credential = of().Credential
	}
	if maybe() {
		q.Format = of().Format
	}
	if maybe() {
		q.Stream = new(of().Stream)
	}
	if maybe() {
		q.Estimated = new(of().Estimated)
	}
	if maybe() {
		q.MinCost = of().Cost
	}
	if maybe() {
		q.From = of().StartedAt.Truncate(time.Second)
	}
	if maybe() {
		q.To = of().StartedAt.Truncate(time.Second)
	}
	if maybe() {
		q.Lowest, q.Highest = of().RequestID, of().RequestID
	}
	return q
}

func matches(r *usage.Record, q *usage.Query) bool {
	return (q.AccountID == account.ID{} || q.AccountID == r.AccountID) && (q.KeyID == key.ID{} || q.KeyID == r.KeyID) &&
		(q.Model == "" || q.Model == r.Model) && (q.Status == "" || q.Status == r.Status) && (q.Provider == "" || q.Provider == r.Provider) &&
		(q.Route == "" || q.Route == r.Route) && (q.Credential == "" || q.Credential == r.Credential) && (q.Format == "" || q.Format == r.Format) && (q.Stream == nil || *q.Stream == r.Stream) &&
		(q.Estimated == nil || *q.Estimated == r.Estimated) && r.Cost >= q.MinCost &&
		!ident.UUID(r.RequestID).Time().Before(q.From.Truncate(time.Millisecond)) && (q.To.IsZero() || ident.UUID(r.RequestID).Time().Before(q.To)) &&
		bytes.Compare(r.RequestID[:], q.Lowest[:]) >= 0 && (q.Highest == usage.RequestID{} || bytes.Compare(r.RequestID[:], q.Highest[:]) <= 0)
}

// A status other than completed and estimated records are found by an index of their own.
func TestRareRecordsAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	insertRecords(t, db, 400)
	store := &Usage{db, 7, 14, 14}
	for name, q := range map[string]usage.Query{
		"failed": {Status: event.Failed}, "estimated": {Estimated: new(true)},
	} {
		q.Limit = 1000
		page, err := store.List(t.Context(), q)
		if err != nil || len(page.Records) == 0 || page.Resume != (usage.RequestID{}) {
			t.Errorf("%s: got %d records, resume at %s, %v; want all at once", name, len(page.Records), page.Resume, err)
		}
		if !slices.IsSortedFunc(page.Records, func(a, b usage.Record) int { return bytes.Compare(b.RequestID[:], a.RequestID[:]) }) {
			t.Errorf("%s: not in the order of ids", name)
		}
	}
}
