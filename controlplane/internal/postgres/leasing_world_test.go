package postgres_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/scripts/testkit/await"
	"modelgateway/shared/apikey"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// leaseWorld is a database with customers and the sessions of proxies.
type leaseWorld struct {
	t testing.TB
	// sql is for statements that the code under test does not run itself.
	sql *pgxpool.Pool
	// url opens further connections to the same database.
	url string
}

func newLeaseWorld(t testing.TB) *leaseWorld {
	t.Helper()
	url := pgtest.URL(t)
	sql, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sql.Close)
	return &leaseWorld{t: t, sql: sql, url: url}
}

// replica opens a pool of connections, as each replica of the control plane does.
func (w *leaseWorld) replica() *postgres.DB {
	w.t.Helper()
	db, err := postgres.Open(w.t.Context(), postgres.Config{URL: w.url, MaxConnections: 6})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(db.Close)
	return db
}

// exec runs SQL, and fails the test if that fails.
func (w *leaseWorld) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.sql.Exec(w.t.Context(), query, args...); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
}

// scalar scans one row.
func scalar[T any](w *leaseWorld, query string, args ...any) T {
	w.t.Helper()
	var value T
	if err := w.sql.QueryRow(w.t.Context(), query, args...).Scan(&value); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return value
}

// window is that of sessions in these tests, which is longer than any of them takes.
const window = 10 * time.Minute

// customer is an account with one key.
type customer struct {
	account, key           ident.UUID
	hash                   apikey.Hash
	balance, limit, slots  wire.PoolID
	limited                bool
	credit, spending, room int64
}

func (c *customer) accountID() string { return ident.Account.Format(c.account) }
func (c *customer) keyID() string     { return ident.Key.Format(c.key) }

// needs returns the needs of one request.
func (c *customer) needs(amount int64) []wire.Need {
	needs := []wire.Need{{Pool: c.balance, Kind: wire.Balance, Amount: amount}, {Pool: c.slots, Kind: wire.Slots, Amount: 1}}
	if c.limited {
		needs = append(needs, wire.Need{Pool: c.limit, Kind: wire.KeyLimit, Amount: amount})
	}
	return needs
}

// unlimited is the limit of a key without limit.
const unlimited = -1

// customer creates an account with a credit, a key with a limit, and slots.
func (w *leaseWorld) customer(credit, limit, slots int64) *customer {
	w.t.Helper()
	c := &customer{account: ident.New(), key: ident.New(), limited: limit != unlimited, credit: credit, spending: limit, room: slots}
	c.hash = apikey.Hash(append(c.key[:], c.account[:]...))
	w.exec("insert into accounts (id, name, max_concurrent_requests, revision) values ($1, 'customer', $2, 1)", c.account, slots)
	var keyLimit *int64
	if c.limited {
		keyLimit = &limit
	}
	w.exec("insert into api_keys (id, account_id, name, lookup_hash, spend_limit, revision) values ($1, $2, 'key', $3, $4, 1)", c.key, c.account, c.hash[:], keyLimit)
	c.balance = scalar[wire.PoolID](w, "insert into pools (account_id, kind, total, free) values ($1, 1, $2, $2) returning id", c.account, credit)
	c.slots = scalar[wire.PoolID](w, "insert into pools (account_id, kind, total, free) values ($1, 3, $2, $2) returning id", c.account, slots)
	c.limit = scalar[wire.PoolID](w, `insert into pools (account_id, kind, key_id, unlimited, total, free)
		values ($1, 2, $2, not $3::boolean, greatest($4::bigint, 0), greatest($4::bigint, 0)) returning id`, c.account, c.key, c.limited, limit)
	if credit != 0 {
		transaction := ident.New()
		w.exec("insert into ledger_transactions (id, kind, reference) values ($1, 'credit', $2)", transaction, ident.Transaction.Format(transaction))
		w.exec(`insert into ledger_entries (transaction_id, kind, line, ledger_account, account_id, amount)
			values ($1, 'credit', 1, 'customer', $2, $3::bigint), ($1, 'credit', 2, 'funding', null, -$3::bigint)`, transaction, c.account, credit)
	}
	return c
}

// session registers a proxy and returns its session.
func (w *leaseWorld) session(store *leasestore.Leases, name string) wire.SessionID {
	w.t.Helper()
	reply, err := store.Register(w.t.Context(), &wire.RegisterRequest{V: wire.Version, Name: name, BootID: name}, window)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply.Session
}

// expire moves the end of a session into the past.
func (w *leaseWorld) expire(s wire.SessionID, seconds int) {
	w.t.Helper()
	w.exec("update proxy_sessions set valid_until = clock_timestamp() - make_interval(secs => $2) where id = $1", s, seconds)
}

// sweep sweeps the sessions as if the stream of changes confirmed their ends at once.
func (w *leaseWorld) sweep(store *leasestore.Leases, connected bool) (fenced, closed int, err error) {
	w.t.Helper()
	var ids []wire.SessionID
	closed, err = store.Sweep(w.t.Context(), window, closeAfter, connected)
	ending, _, failed := store.EndingSessions(w.t.Context())
	for _, s := range ending {
		ids = append(ids, s.ID)
	}
	fenced, unfenced := store.FenceEnding(w.t.Context(), ids)
	if failed != nil || unfenced != nil {
		w.t.Fatal(failed, unfenced)
	}
	return fenced, closed, err
}

// figures are the amounts of a pool.
type figures struct{ Total, Free, Held, Settled, Overrun, Late int64 }

func (w *leaseWorld) figures(id wire.PoolID) figures {
	w.t.Helper()
	var p figures
	err := w.sql.QueryRow(w.t.Context(), `
		select total, free, (select coalesce(sum(granted - returned - charged), 0) from leases where pool_id = id)::bigint, settled, overrun, late
		from pools where id = $1`, id).Scan(&p.Total, &p.Free, &p.Held, &p.Settled, &p.Overrun, &p.Late)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// check fails the test unless every invariant holds in the whole database.
func (w *leaseWorld) check() {
	w.t.Helper()
	report, err := moneystore.NewLedger(postgres.Wrap(w.sql)).Check(context.WithoutCancel(w.t.Context()), time.Time{}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Differing != 0 {
			w.t.Errorf("%s: %d of %d differ, first %+v", c.Name, c.Differing, c.Compared, *c.First)
		}
	}
	if bad := scalar[int](w, "select count(*) from pools where kind <> 2 and free < -(overrun + late)"); bad != 0 {
		w.t.Errorf("%d pools are below the minimum that overruns and late charges allow", bad)
	}
}

// checkNoDeadlock fails the test if Postgres had to end a deadlock, which InTx
// would hide. It closes the replicas, since a connection reports when it ends.
func (w *leaseWorld) checkNoDeadlock(replicas ...*postgres.DB) {
	w.t.Helper()
	for _, db := range replicas {
		db.Close()
	}
	// A backend reports at its end, which Close does not wait for.
	await.Until(w.t, "the end of the connections", func() bool {
		return scalar[int](w, "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'controlplane'") == 0
	})
	if n := scalar[int64](w, "select deadlocks from pg_stat_database where datname = current_database()"); n != 0 {
		w.t.Errorf("%d deadlocks", n)
	}
}

// waitBlocked returns when some connection to the database waits for a lock.
func (w *leaseWorld) waitBlocked(connections int) {
	w.t.Helper()
	await.Until(w.t, "connections that wait for a lock", func() bool {
		return scalar[int](w, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") >= connections
	})
}

// service starts the leasing service of a replica, which is stopped when the test
// ends. All pools are in central mode, and no session has idle units to return.
func (w *leaseWorld) service(db *postgres.DB) *leasing.Service {
	busy := &busyProxies{w: w}
	busy.s = w.start(db, busy, -1)
	return busy.s
}

// patientService delays refusals for so long that a return on a slow machine is in time.
func (w *leaseWorld) patientService(db *postgres.DB) *leasing.Service {
	busy := &busyProxies{w: w}
	busy.s = w.startWith(db, busy, leasing.Config{Window: window, HeadroomPeriod: -1, RefusalGracePeriod: time.Second})
	return busy.s
}

// recallingService switches pools to escrow mode as soon as possible.
func (w *leaseWorld) recallingService(db *postgres.DB, pusher leasing.Pusher) *leasing.Service {
	return w.start(db, pusher, 1)
}

func (w *leaseWorld) start(db *postgres.DB, pusher leasing.Pusher, headroomPeriod time.Duration) *leasing.Service {
	return w.startWith(db, pusher, leasing.Config{Window: window, HeadroomPeriod: headroomPeriod})
}

// withoutSweeps is a store whose service does not fence or close sessions each second of real time: tests sweep when they expect it.
type withoutSweeps struct{ *leasestore.Leases }

func (withoutSweeps) Sweep(context.Context, time.Duration, time.Duration, bool) (closed int, err error) {
	return 0, nil
}

func (w *leaseWorld) startWith(db *postgres.DB, pusher leasing.Pusher, cfg leasing.Config) *leasing.Service {
	s := leasing.New(cfg, withoutSweeps{leasestore.NewLeases(db)}, pusher, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	s.Start(w.t.Context())
	w.t.Cleanup(s.Stop)
	return s
}

// busyProxies answer every recall and return nothing: they have no idle units.
type busyProxies struct {
	leasing.Pusher // announcements are not made
	w              *leaseWorld
	s              *leasing.Service
}

func (p *busyProxies) Connected() bool { return true }

func (p *busyProxies) Recall(session wire.SessionID, r wire.Recall) error {
	v := wire.LeaseReport{Pool: r.Pool, Generation: r.Generation}
	v.GrantedSeen = scalar[int64](p.w, "select granted from leases where pool_id = $1 and session_id = $2", r.Pool, session)
	v.Returned = scalar[int64](p.w, "select returned from leases where pool_id = $1 and session_id = $2", r.Pool, session)
	boot := scalar[string](p.w, "select boot_id from proxy_sessions where id = $1", session)
	p.s.Return(&wire.Return{V: wire.Version, Session: session, BootID: boot, Account: r.Account, Reports: []wire.LeaseReport{v}}, func(wire.ReturnResponse) {})
	return nil
}

// ask sends a lease request until it is decided, as a proxy does: on a slow machine a
// recall or a transaction can time out.
func ask(s *leasing.Service, op *wire.LeaseRequest) wire.LeaseResponse {
	answer := make(chan wire.LeaseResponse, 1)
	for {
		s.Request(op, func(r wire.LeaseResponse) { answer <- r })
		if r := <-answer; r.Status != wire.Wait && r.Status != wire.Unavailable {
			return r
		}
	}
}

// returnUnits sends a return until it is accepted or refused.
func returnUnits(s *leasing.Service, ret *wire.Return) wire.ReturnResponse {
	answer := make(chan wire.ReturnResponse, 1)
	for {
		s.Return(ret, func(r wire.ReturnResponse) { answer <- r })
		if r := <-answer; r.Status != wire.Unavailable {
			return r
		}
	}
}

// closeSession closes a session and checks whether that was possible.
func (w *leaseWorld) closeSession(store *leasestore.Leases, s wire.SessionID, boot string, count int64, want bool) {
	w.t.Helper()
	got, err := store.Close(w.t.Context(), &wire.CloseRequest{V: wire.Version, Session: s, BootID: boot, FinalCount: count})
	if err != nil || got != want {
		w.t.Errorf("close session %d: %v, %v; want %v", s, got, err, want)
	}
}

// event returns the usage event of a finished request.
func (c *customer) event(s wire.SessionID, n, cost int64) event.Usage {
	now := time.Now().UnixMilli()
	return event.Usage{
		V: event.Version, RequestID: ident.Request.New(), Session: int64(s), Seq: n, AccountID: c.accountID(), KeyID: c.keyID(),
		Model: "model", Format: "chat", Status: event.Completed, StartedMS: now, FinishedMS: now,
		Usage: price.Usage{Input: cost}, Rule: event.RuleReported, PriceVersion: 1, Cost: money.Nano(cost),
	}
}

// batch returns a message of the usage stream with the events.
func batch(t testing.TB, session int64, events ...event.Usage) []byte {
	t.Helper()
	b := event.Batch{V: event.Version, BatchID: rand.Text(), Session: session}
	for _, e := range events {
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Events = append(b.Events, raw)
	}
	payload, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// settle settles events of one session, as one message.
func (w *leaseWorld) settle(db *postgres.DB, events ...event.Usage) settle.Result {
	w.t.Helper()
	return w.settleItems(db, settle.DecodeBatch(batch(w.t, events[0].Session, events...)))
}

func (w *leaseWorld) settleItems(db *postgres.DB, items []settle.Item) settle.Result {
	w.t.Helper()
	result, err := settle.New(moneystore.NewSettlement(db), nil).Settle(w.t.Context(), items)
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// checkPools checks conservation while others write.
func (w *leaseWorld) checkPools() {
	w.t.Helper()
	n := scalar[int](w, `
		select count(*) from (
			select p.id from pools p left join leases l on l.pool_id = p.id
			group by p.id having p.total <> p.free + p.settled + coalesce(sum(l.granted - l.returned - l.charged), 0)
		) as off`)
	if n != 0 {
		w.t.Errorf("%d pools violate conservation", n)
	}
}
