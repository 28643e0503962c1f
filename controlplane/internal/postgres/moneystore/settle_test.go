package moneystore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// outcome is the result of settlement that must not depend on the order of delivery.
type outcome struct {
	Pools                               []storetest.Figures
	Usage, Ledger, Sessions, Quarantine string
	// DanglingReferences counts the records whose ledger transaction does not exist.
	DanglingReferences int
}

func (w *leaseWorld) outcome(customers []*storetest.Customer) outcome {
	w.T.Helper()
	o := outcome{
		Usage: storetest.Scalar[string](w, `select coalesce(string_agg(to_jsonb(u)::text, e'\n' order by request_id), '') from (
			select request_id, session_id, seq, account_id, key_id, model, cost, usage from usage_records) as u`),
		Ledger: storetest.Scalar[string](w, `select coalesce(string_agg(account || ' ' || amount, e'\n' order by account), '') from (
			select coalesce(e.account_id::text, e.ledger_account) as account, sum(e.amount) as amount
			from ledger_entries e join ledger_transactions t on t.id = e.transaction_id where t.kind = 'usage' group by 1) as l`),
		Sessions:   storetest.Scalar[string](w, "select string_agg(id || ' ' || settled_seqs, e'\n' order by id) from proxy_sessions"),
		Quarantine: storetest.Scalar[string](w, "select coalesce(string_agg(session_id || ' ' || seq || ' ' || reason, e'\n' order by session_id, seq), '') from quarantine"),
		DanglingReferences: storetest.Scalar[int](w, `select count(*) from usage_records u
			left join ledger_transactions t on t.id = u.transaction_id where u.transaction_id is not null and t.id is null`),
	}
	for _, c := range customers {
		o.Pools = append(o.Pools, w.Figures(c.Balance), w.Figures(c.Limit), w.Figures(c.Slots))
	}
	return o
}

// Any order, duplication and splitting of the same events gives the same result
// (see TestChaos_dup_shuffle_events).
func TestAnyDeliverySettlesOnce(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	store, service := leasestore.NewLeases(db), w.Service(db)
	customers := []*storetest.Customer{w.Customer(5000, storetest.Unlimited, 5), w.Customer(100, 50, 5), w.Customer(3000, 9000, 5)}
	var sessions []wire.SessionID
	for i := range 3 {
		s := w.Session(store, "proxy")
		sessions = append(sessions, s)
		for _, c := range customers {
			h := holder.NewHolder(s, "proxy", c.AccountID())
			h.Reserve(c.Needs(40))
			storetest.Ask(service, h.NextRequest())
		}
		if i == 2 {
			w.CloseSession(store, s, "proxy", 0, true)
		}
	}
	service.Stop()
	sessions = append(sessions, 4711) // one that Postgres does not know
	r := rand.New(rand.NewPCG(1, 2))
	bySession := map[wire.SessionID][]event.Usage{}
	for i := range 120 {
		s := sessions[i%len(sessions)]
		e := customers[r.IntN(len(customers))].Event(s, int64(len(bySession[s])+1), r.Int64N(100))
		switch i {
		case 17, 50:
			e.Cost = -1
		case 31:
			e.KeyID = ident.Key.New()
		}
		bySession[s] = append(bySession[s], e)
	}
	snapshot := w.dump()
	w.deliver(db, bySession, nil)
	want := w.outcome(customers)
	w.Check()
	if lines := strings.Count(want.Quarantine, "\n") + 1; lines != 3 || want.DanglingReferences != 0 {
		t.Fatalf("%d lines of quarantine and %d dangling references; want 3 and none:\n%s", lines, want.DanglingReferences, want.Quarantine)
	}
	for seed := range uint64(12) {
		w.restore(snapshot)
		w.deliver(db, bySession, rand.New(rand.NewPCG(seed, 3)))
		if diff := cmp.Diff(want, w.outcome(customers)); diff != "" {
			t.Errorf("seed %d (-in order +shuffled):\n%s", seed, diff)
		}
		w.Check()
	}
}

// deliver settles the events in order and once, or, with a random source, shuffled,
// some of them several times, in messages and batches of any size.
func (w *leaseWorld) deliver(db *postgres.DB, bySession map[wire.SessionID][]event.Usage, r *rand.Rand) {
	w.T.Helper()
	var messages [][]byte
	for s, events := range bySession {
		events = slices.Clone(events)
		if r == nil {
			messages = append(messages, storetest.Batch(w.T, int64(s), events...))
			continue
		}
		events = append(events, events[:r.IntN(len(events))]...)
		r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for len(events) > 0 {
			n := 1 + r.IntN(len(events))
			messages = append(messages, storetest.Batch(w.T, int64(s), events[:n]...))
			events = events[n:]
		}
	}
	if r != nil {
		messages = append(messages, messages[:r.IntN(len(messages))]...)
		r.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	}
	for len(messages) > 0 {
		n := 1
		if r != nil {
			n = 1 + r.IntN(len(messages))
		}
		var items []settle.Item
		for _, m := range messages[:n] {
			items = append(items, settle.DecodeBatch(m)...)
		}
		w.SettleItems(db, items)
		messages = messages[n:]
	}
}

// dump returns pools, leases and sessions; restore writes them back and deletes
// everything that was settled.
func (w *leaseWorld) dump() [3]string {
	return [3]string{
		storetest.Scalar[string](w, "select jsonb_agg(p)::text from pools p"),
		storetest.Scalar[string](w, "select jsonb_agg(l)::text from leases l"),
		storetest.Scalar[string](w, "select jsonb_agg(s)::text from proxy_sessions s"),
	}
}

func (w *leaseWorld) restore(dump [3]string) {
	w.T.Helper()
	w.Exec(`do $$ begin
		set local session_replication_role = replica; -- without the triggers that refuse it
		truncate usage_records, usage_daily, usage_weekly, usage_daily_models, quarantine;
	end $$`)
	w.Exec("alter table ledger_entries disable trigger all")
	w.Exec("alter table ledger_transactions disable trigger all")
	w.Exec("delete from ledger_entries where transaction_id in (select id from ledger_transactions where kind = 'usage')")
	w.Exec("delete from ledger_transactions where kind = 'usage'")
	w.Exec("alter table ledger_entries enable trigger all")
	w.Exec("alter table ledger_transactions enable trigger all")
	w.Exec("delete from leases")
	w.Exec(`update pools p set free = d.free, settled = d.settled, overrun = d.overrun, late = d.late
		from jsonb_populate_recordset(null::pools, $1::jsonb) d where d.id = p.id`, dump[0])
	w.Exec("insert into leases select * from jsonb_populate_recordset(null::leases, $1::jsonb)", dump[1]) //nolint:unqueryvet // all that was dumped
	w.Exec("update proxy_sessions s set settled_seqs = d.settled_seqs from jsonb_populate_recordset(null::proxy_sessions, $1::jsonb) d where d.id = s.id", dump[2])
}

// Events that cannot be settled go into quarantine, cost nothing, and still count in
// the watermark.
func TestInvalidEventsAreQuarantined(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c, other := w.Customer(1000, storetest.Unlimited, 5), w.Customer(1000, storetest.Unlimited, 5)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	tests := []struct {
		name    string
		spoil   func(e *event.Usage)
		replace [2]string
		want    string
		// uncounted events have no sequence number of the session.
		uncounted bool
	}{
		{name: "negative cost", spoil: func(e *event.Usage) { e.Cost = -5 }, want: "is negative"},
		{name: "absurd cost", spoil: func(e *event.Usage) { e.Cost = math.MaxInt64 }, want: "is above"},
		{name: "unknown key", spoil: func(e *event.Usage) { e.KeyID = ident.Key.New() }, want: "there is no such key"},
		{name: "unknown account", spoil: func(e *event.Usage) { e.AccountID = ident.Account.New() }, want: "the key belongs to another account"},
		{name: "account of another key", spoil: func(e *event.Usage) { e.AccountID = other.AccountID() }, want: "the key belongs to another account"},
		{name: "malformed id", spoil: func(e *event.Usage) { e.RequestID = strings.Repeat("é", 5000) }, want: "ident: "},
		{name: "far past", spoil: func(e *event.Usage) {
			e.RequestID = ident.Request.Format(ident.NewAt(time.Now().AddDate(-1, 0, 0)))
		}, want: "is outside"},
		{name: "far future", spoil: func(e *event.Usage) {
			e.RequestID = ident.Request.Format(ident.NewAt(time.Now().Add(25 * time.Hour)))
		}, want: "is outside"},
		{name: "wrong type", replace: [2]string{`"cost":1`, `"cost":"1"`}, want: "cannot unmarshal"},
		{name: "not an object", replace: [2]string{`{`, `[{`}, want: "cannot unmarshal", uncounted: true},
		{name: "text that Postgres cannot hold", spoil: func(e *event.Usage) { e.Model = "a\x00b" }, want: "0x00"},
		{name: "quoted text that Postgres cannot hold", spoil: func(e *event.Usage) { e.KeyID = "a\x00b" }, want: "is not an identifier"},
		{name: "number out of range", spoil: func(e *event.Usage) { e.Seq = math.MaxInt64 }, want: "out of range", uncounted: true},
		{name: "estimate beyond every sum", spoil: func(e *event.Usage) {
			e.Rule, e.Usage.Output = event.RuleEstimated, math.MaxInt64
		}, want: "usage.output is"},
		{name: "attempt beyond every sum", spoil: func(e *event.Usage) {
			e.Attempts = []event.Attempt{{Route: "rte_0", Class: "timeout", Usage: price.Usage{Output: math.MaxInt64}}}
		}, want: "attempts.usage.output is"},
		{name: "attempt with a negative count", spoil: func(e *event.Usage) {
			e.Attempts = []event.Attempt{{Route: "rte_0", Class: "timeout", Usage: price.Usage{Input: -1}}}
		}, want: "attempts.usage.input is -1"},
		{name: "made-up service tier", spoil: func(e *event.Usage) { e.Usage.ServiceTier = "No Tier" }, want: "usage.service_tier"},
		{name: "long model", spoil: func(e *event.Usage) { e.Model = strings.Repeat("m", 100_000) }, want: "model has 100000 bytes"},
		{name: "of another session", spoil: func(e *event.Usage) { e.Session = 4711 }, want: "in a batch of session", uncounted: true},
		{name: "of a later version", spoil: func(e *event.Usage) { e.V = event.Version + 1 }, want: "version"},
	}
	n := int64(0)
	for _, tt := range tests {
		n++
		bad := c.Event(s, n, 1)
		if tt.spoil != nil {
			tt.spoil(&bad)
		}
		message := string(storetest.Batch(t, int64(s), bad))
		if tt.replace[0] != "" {
			head, tail, _ := strings.Cut(message, `"events":[`)
			message = head + `"events":[` + strings.Replace(tail, tt.replace[0], tt.replace[1], 1)
			if tt.uncounted {
				message = strings.TrimSuffix(message, "]}") + "]]}"
			}
		}
		n++
		items := append(settle.DecodeBatch([]byte(message)), settle.DecodeBatch(storetest.Batch(t, int64(s), c.Event(s, n, 10)))...)
		for again := range 2 {
			got := w.SettleItems(db, slices.Clone(items))
			if got.Quarantined != 1 || got.Settled != 1-again {
				t.Errorf("%s: %+v; want the good event settled once and the bad one in quarantine", tt.name, got)
			}
		}
		reason := storetest.Scalar[string](w, "select reason from quarantine order by id desc limit 1")
		if !strings.Contains(reason, tt.want) || len(reason) > 1000 {
			t.Errorf("%s: reason %q; want %q in it", tt.name, reason, tt.want)
		}
		counted := storetest.Scalar[bool](w, "select settled_seqs @> $2::bigint from proxy_sessions where id = $1", s, n-1)
		if counted == tt.uncounted {
			t.Errorf("%s: counted %v; want the opposite", tt.name, counted)
		}
	}
	if got := storetest.Scalar[int](w, "select count(*) from quarantine"); got != len(tests) {
		t.Errorf("%d rows of quarantine; want %d, one for each event", got, len(tests))
	}
	want := int64(len(tests)) * 10
	if diff := cmp.Diff(storetest.Figures{Total: 1000, Free: 1000 - want, Settled: want, Overrun: want}, w.Figures(c.Balance)); diff != "" {
		t.Errorf("balance (-want +got):\n%s", diff)
	}
	w.Check()
}

// No message, whatever its content, stops the settlement of the stream.
func TestUnreadableMessagesAreQuarantined(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	random := make([]byte, 200_000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	for _, message := range [][]byte{nil, []byte("{"), []byte(`{"events":7}`), []byte("\x00\x00"), random} {
		for range 2 {
			if got := w.SettleItems(db, settle.DecodeBatch(message)); got.Quarantined != 1 || len(got.Watermarks) != 0 {
				t.Errorf("message of %d bytes: %+v; want it in quarantine", len(message), got)
			}
		}
	}
	if got := storetest.Scalar[int](w, "select count(*) from quarantine"); got != 5 {
		t.Errorf("%d rows of quarantine; want 5", got)
	}
	if got := settle.DecodeBatch([]byte(`{"v":1,"events":[]}`)); len(got) != 0 {
		t.Errorf("an empty batch gives %d items", len(got))
	}
	w.SettleItems(db, nil)
}

// Of many events, only the one that Postgres refuses goes into quarantine.
func TestOnlyTheRefusedEventIsQuarantined(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(1000, storetest.Unlimited, 5)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	var events []event.Usage
	for n := range int64(50) {
		events = append(events, c.Event(s, n+1, 1))
	}
	events[7].Format, events[31].Provider = "a\x00", "b\x00"
	result := w.Settle(db, events...)
	if result.Settled != 48 || result.Quarantined != 2 {
		t.Errorf("%+v; want 48 settled and 2 in quarantine", result)
	}
	if got := storetest.Scalar[string](w, "select settled_seqs::text from proxy_sessions where id = $1", s); got != "{[1,51)}" {
		t.Errorf("numbers %s; want {[1,51)}", got)
	}
	w.Check()
}

// A repeated event that differs from the settled one goes into quarantine
// (see TestChaos_altered_duplicate_quarantined).
func TestConflictingDuplicateIsQuarantined(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(1000, storetest.Unlimited, 5)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	first := c.Event(s, 1, 10)
	same := first
	same.Status, same.Seq = event.Failed, 2 // decides no money
	altered := first
	altered.Cost, altered.Seq = 11, 3
	for i, want := range []settle.Result{{Settled: 1, Duplicates: 1, Quarantined: 1}, {Duplicates: 2, Quarantined: 1}} {
		got := w.Settle(db, first, same, altered)
		got.Watermarks, got.OldestFinishedMS = nil, 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("delivery %d (-want +got):\n%s", i, diff)
		}
	}
	if got := storetest.Scalar[string](w, "select string_agg(seq || ' ' || reason, ';') from quarantine"); got != "3 altered duplicate of a settled request" {
		t.Errorf("quarantine holds %q", got)
	}
	if got := storetest.Scalar[int](w, "select count(*) from ledger_transactions where kind = 'usage'"); got != 1 {
		t.Errorf("%d ledger transactions; want one, since a repetition books nothing", got)
	}
	if got := w.Figures(c.Balance).Settled; got != 10 {
		t.Errorf("%d settled; want 10", got)
	}
	w.Check()
}

func TestWatermarks(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(1000, storetest.Unlimited, 5)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	tests := []struct {
		name    string
		session wire.SessionID
		numbers []int64
		want    []event.Settled
	}{
		{"a gap at the start", s, []int64{2, 3, 5}, []event.Settled{{Beyond: [][2]int64{{2, 3}, {5, 5}}}}},
		{"the gap is closed", s, []int64{1}, []event.Settled{{Watermark: 3, Beyond: [][2]int64{{5, 5}}}}},
		{"all", s, []int64{4, 6}, []event.Settled{{Watermark: 6, Beyond: [][2]int64{}}}},
		{"a session that Postgres lost", 4711, []int64{8}, []event.Settled{{Beyond: [][2]int64{{8, 8}}}}},
	}
	for _, tt := range tests {
		var events []event.Usage
		for _, n := range tt.numbers {
			events = append(events, c.Event(tt.session, n, 0))
		}
		tt.want[0].V, tt.want[0].Session = event.Version, int64(tt.session)
		if diff := cmp.Diff(tt.want, w.Settle(db, events...).Watermarks); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	// Events without a cost have records and no ledger entries.
	if got := storetest.Scalar[int](w, "select count(*) from usage_records"); got != 7 {
		t.Errorf("%d records; want 7", got)
	}
	if got := storetest.Scalar[int](w, "select count(*) from ledger_entries e join ledger_transactions t on t.id = e.transaction_id where t.kind = 'usage'"); got != 0 {
		t.Errorf("%d ledger entries; want none", got)
	}
	w.Check()
}

// A cost is charged even if nothing was granted for it, such as the cost of a video job
// that ends in another session than the one in which it began.
func TestChargesWithoutLease(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		limit        int64
		closed       bool
		balance, key storetest.Figures
	}{
		{
			name: "open session", limit: 5,
			balance: storetest.Figures{Total: 100, Free: 93, Settled: 7, Overrun: 7},
			key:     storetest.Figures{Total: 5, Free: -2, Settled: 7, Overrun: 7},
		},
		{
			name: "closed session", limit: 5, closed: true,
			balance: storetest.Figures{Total: 100, Free: 93, Settled: 7, Late: 7},
			key:     storetest.Figures{Total: 5, Free: -2, Settled: 7, Late: 7},
		},
		{
			name: "no limit", limit: storetest.Unlimited,
			balance: storetest.Figures{Total: 100, Free: 93, Settled: 7, Overrun: 7},
			key:     storetest.Figures{Free: -7, Settled: 7},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newLeaseWorld(t)
			db := w.Replica()
			c := w.Customer(100, tt.limit, 5)
			store := leasestore.NewLeases(db)
			s := w.Session(store, "proxy")
			if tt.closed {
				w.CloseSession(store, s, "proxy", 0, true)
			}
			e := c.Event(s, 1, 7)
			e.VideoJob = ident.Video.New()
			w.Settle(db, e)
			if diff := cmp.Diff([]storetest.Figures{tt.balance, tt.key}, []storetest.Figures{w.Figures(c.Balance), w.Figures(c.Limit)}); diff != "" {
				t.Errorf("balance and limit (-want +got):\n%s", diff)
			}
			w.Check()
		})
	}
}

func TestUsageRecordsAreAppendOnly(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	db := w.Replica()
	c := w.Customer(100, storetest.Unlimited, 5)
	w.Settle(db, c.Event(w.Session(leasestore.NewLeases(db), "proxy"), 1, 7))
	partition := storetest.Scalar[string](w, "select tableoid::regclass::text from usage_records")
	for _, table := range []string{"usage_records", partition} {
		for _, statement := range []string{"update %s set cost = 0", "delete from %s"} {
			query := fmt.Sprintf(statement, table)
			if _, err := w.SQL.Exec(t.Context(), query); err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s: %v; want it refused", query, err)
			}
		}
	}
}

// The next partitions exist before the last one begins.
func TestPartitionsAreCreated(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	store := moneystore.NewSettlement(w.Replica())
	from, to, _, err := store.RequestTimes(t.Context())
	if err != nil || time.Until(to) < 32*24*time.Hour || time.Since(from) < 30*24*time.Hour {
		t.Fatalf("span %s to %s, %v", from, to, err)
	}
	for partitions := range 3 {
		last := storetest.Scalar[string](w, `select i.inhrelid::regclass::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
			where i.inhparent = 'usage_records'::regclass order by c.relname desc limit 1`)
		w.Exec("drop table " + last)
		againFrom, againTo, _, err := store.RequestTimes(t.Context())
		if err != nil || time.Until(againTo) < 32*24*time.Hour || !againFrom.Equal(from) {
			t.Errorf("after dropping %d: span %s to %s, %v", partitions+1, againFrom, againTo, err)
		}
	}
}

// BenchmarkSettle settles batches as the consumer collects them under load: 16 messages
// of 500 events, of a thousand accounts, in one replica and in two at once.
func BenchmarkSettle(b *testing.B) {
	for _, settlers := range []int{1, 2} {
		b.Run(fmt.Sprint("settlers=", settlers), func(b *testing.B) { benchmarkSettle(b, settlers) })
	}
}

func benchmarkSettle(b *testing.B, settlers int) {
	w := newLeaseWorld(b)
	db := w.Replica()
	settler := settle.New(moneystore.NewSettlement(db), nil)
	s := w.Session(leasestore.NewLeases(db), "proxy")
	var customers []*storetest.Customer
	for range 1000 {
		customers = append(customers, w.Customer(int64(money.Unit), storetest.Unlimited, 5))
	}
	const perMessage, messages = 500, 16
	batches := make(chan [][]byte, b.N)
	for i := range b.N {
		var payloads [][]byte
		for m := range messages {
			var events []event.Usage
			for n := range perMessage {
				number := int64((i*messages+m)*perMessage + n + 1)
				events = append(events, customers[rand.IntN(len(customers))].Event(s, number, 1000))
			}
			payloads = append(payloads, storetest.Batch(b, int64(s), events...))
		}
		batches <- payloads
	}
	close(batches)
	b.ResetTimer()
	var work sync.WaitGroup
	for range settlers {
		work.Go(func() {
			for payloads := range batches {
				var items []settle.Item
				for _, payload := range payloads {
					items = append(items, settle.DecodeBatch(payload)...)
				}
				if result, err := settler.Settle(b.Context(), items); err != nil || result.Settled != len(items) {
					b.Error(result, err)
				}
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64(b.N*messages*perMessage)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkRead decodes messages.
func BenchmarkRead(b *testing.B) {
	c := &storetest.Customer{Account: ident.New(), Key: ident.New()}
	var events []event.Usage
	for n := range 500 {
		events = append(events, c.Event(1, int64(n+1), 1000))
	}
	message := storetest.Batch(b, 1, events...)
	for b.Loop() {
		settle.DecodeBatch(message)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}
