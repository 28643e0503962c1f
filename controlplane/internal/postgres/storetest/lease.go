// Package storetest has what tests of several stores share: a database with customers and the sessions of proxies, on which a test
// settles usage and checks every invariant.
package storetest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/apikey"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/money"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// World is a database with customers and the sessions of proxies.
type World struct {
	T testing.TB
	// sql is for statements that the code under test does not run itself.
	SQL *pgxpool.Pool
	// url opens further connections to the same database.
	URL string
}

// New returns an empty database.
func New(t testing.TB) *World {
	t.Helper()
	url := pgtest.URL(t)
	sql, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sql.Close)
	return &World{T: t, SQL: sql, URL: url}
}

// Replica opens a pool of connections, as each replica of the control plane does.
func (w *World) Replica() *postgres.DB {
	w.T.Helper()
	db, err := postgres.Open(w.T.Context(), postgres.Config{URL: w.URL, MaxConnections: 6})
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(db.Close)
	return db
}

// Exec runs SQL, and fails the test if that fails.
func (w *World) Exec(query string, args ...any) {
	w.T.Helper()
	if _, err := w.SQL.Exec(w.T.Context(), query, args...); err != nil {
		w.T.Fatalf("%s: %v", query, err)
	}
}

// world is promoted by types that embed a world.
func (w *World) world() *World { return w }

// Scalar scans one row.
func Scalar[T any](in interface{ world() *World }, query string, args ...any) T {
	w := in.world()
	w.T.Helper()
	var value T
	if err := w.SQL.QueryRow(w.T.Context(), query, args...).Scan(&value); err != nil {
		w.T.Fatalf("%s: %v", query, err)
	}
	return value
}

// Window is that of sessions in these tests, which is longer than any of them takes.
const Window = 10 * time.Minute

// Customer is an account with one key.
type Customer struct {
	Account, Key           ident.UUID
	Hash                   apikey.Hash
	Balance, Limit, Slots  wire.PoolID
	Limited                bool
	Credit, Spending, Room int64
}

// AccountID is the id of the account on the wire.
func (c *Customer) AccountID() string { return ident.Account.Format(c.Account) }

// KeyID is the id of the key on the wire.
func (c *Customer) KeyID() string { return ident.Key.Format(c.Key) }

// Needs returns the needs of one request.
func (c *Customer) Needs(amount int64) []wire.Need {
	needs := []wire.Need{{Pool: c.Balance, Kind: wire.Balance, Amount: amount}, {Pool: c.Slots, Kind: wire.Slots, Amount: 1}}
	if c.Limited {
		needs = append(needs, wire.Need{Pool: c.Limit, Kind: wire.Limit, Amount: amount})
	}
	return needs
}

// Unlimited is the limit of a key without limit.
const Unlimited = -1

// Customer creates an account with a credit, a key with a limit, and slots.
func (w *World) Customer(credit, limit, slots int64) *Customer {
	w.T.Helper()
	c := &Customer{
		Account:  ident.New(),
		Key:      ident.New(),
		Limited:  limit != Unlimited,
		Credit:   credit,
		Spending: limit,
		Room:     slots,
	}
	c.Hash = apikey.Hash(append(c.Key[:], c.Account[:]...))
	w.Exec("insert into accounts (id, name, max_concurrent_requests, revision) values ($1, 'customer', $2, 1)", c.Account, slots)
	var keyLimit *int64
	if c.Limited {
		keyLimit = &limit
	}
	w.Exec(`insert into api_keys (id, account_id, name, lookup_hash, spend_limit, revision)
		values ($1, $2, 'key', $3, $4, 1)`, c.Key, c.Account, c.Hash[:], keyLimit)
	const pool = "insert into pools (account_id, kind, total, free, peak) values ($1, $2, $3, $3, $3) returning id"
	c.Balance = Scalar[wire.PoolID](w, pool, c.Account, 1, credit)
	c.Slots = Scalar[wire.PoolID](w, pool, c.Account, 3, slots)
	c.Limit = Scalar[wire.PoolID](w, `insert into pools (account_id, kind, key_id, unlimited, total, free)
		values ($1, 2, $2, not $3::boolean, greatest($4::bigint, 0), greatest($4::bigint, 0)) returning id`,
		c.Account, c.Key, c.Limited, limit)
	if credit != 0 {
		transaction := ident.New()
		reference := ident.Transaction.Format(transaction)
		w.Exec("insert into ledger_transactions (id, kind, reference) values ($1, 'payment', $2)", transaction, reference)
		w.Exec(`insert into ledger_entries (transaction_id, kind, line, ledger_account, account_id, amount)
			values ($1, 'payment', 1, 'customer', $2, $3::bigint), ($1, 'payment', 2, 'funding', null, -$3::bigint)`,
			transaction, c.Account, credit)
		w.Exec("insert into credits (transaction_id, account_id, amount) values ($1, $2, $3)", transaction, c.Account, credit)
	}
	return c
}

// Session registers a proxy and returns its session.
func (w *World) Session(store *leasestore.Leases, name string) wire.SessionID {
	w.T.Helper()
	reply, err := store.Register(w.T.Context(), &wire.RegisterRequest{V: wire.Version, Name: name, BootID: name}, Window)
	if err != nil {
		w.T.Fatal(err)
	}
	return reply.Session
}

// Expire moves the end of a session into the past.
func (w *World) Expire(s wire.SessionID, seconds int) {
	w.T.Helper()
	w.Exec("update proxy_sessions set valid_until = clock_timestamp() - make_interval(secs => $2) where id = $1", s, seconds)
}

// Sweep sweeps the sessions as if the stream of changes confirmed their ends at once.
func (w *World) Sweep(store *leasestore.Leases, connected bool) (fenced, closed int, err error) {
	w.T.Helper()
	var ids []wire.SessionID
	closed, err = store.Sweep(w.T.Context(), Window, session.CloseAfter, connected)
	ending, _, failed := store.EndingSessions(w.T.Context())
	for _, s := range ending {
		ids = append(ids, s.ID)
	}
	fenced, unfenced := store.FenceEnding(w.T.Context(), ids)
	if failed != nil || unfenced != nil {
		w.T.Fatal(failed, unfenced)
	}
	return fenced, closed, err
}

// Figures are the amounts of a pool.
type Figures struct{ Total, Free, Held, Settled, Overrun, Late int64 }

// Figures reads a pool.
func (w *World) Figures(id wire.PoolID) Figures {
	w.T.Helper()
	var p Figures
	err := w.SQL.QueryRow(w.T.Context(), `
		select total, free,
			(select coalesce(sum(granted - returned - charged), 0) from leases where pool_id = id)::bigint,
			settled, overrun, late
		from pools where id = $1`, id).Scan(&p.Total, &p.Free, &p.Held, &p.Settled, &p.Overrun, &p.Late)
	if err != nil {
		w.T.Fatal(err)
	}
	return p
}

// Check fails the test unless every invariant holds in the whole database.
func (w *World) Check() {
	w.T.Helper()
	report, err := moneystore.NewLedger(postgres.Wrap(w.SQL)).Check(context.WithoutCancel(w.T.Context()), time.Time{}, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Differing != 0 {
			w.T.Errorf("%s: %d of %d differ, first %+v", c.Name, c.Differing, c.Compared, *c.First)
		}
	}
	if bad := Scalar[int](w, "select count(*) from pools where kind <> 2 and free < -(overrun + late)"); bad != 0 {
		w.T.Errorf("%d pools are below the minimum that overruns and late charges allow", bad)
	}
}

// CheckNoDeadlock fails the test if Postgres had to end a deadlock, which InTx
// would hide. It closes the replicas, since a connection reports when it ends.
func (w *World) CheckNoDeadlock(replicas ...*postgres.DB) {
	w.T.Helper()
	for _, db := range replicas {
		db.Close()
	}
	// A backend reports at its end, which Close does not wait for.
	await.Until(w.T, "the end of the connections", func() bool {
		return Scalar[int](w, `select count(*) from pg_stat_activity
			where datname = current_database() and application_name = 'controlplane'`) == 0
	})
	if n := Scalar[int64](w, "select deadlocks from pg_stat_database where datname = current_database()"); n != 0 {
		w.T.Errorf("%d deadlocks", n)
	}
}

// WaitBlocked returns when some connection to the database waits for a lock.
func (w *World) WaitBlocked(connections int) {
	w.T.Helper()
	await.Until(w.T, "connections that wait for a lock", func() bool {
		return Scalar[int](w, `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`) >= connections
	})
}

// Service starts the leasing service of a replica, which is stopped when the test
// ends. All pools are in central mode, and no session has idle units to return.
func (w *World) Service(db *postgres.DB) *leasing.Service {
	busy := &busyProxies{w: w}
	busy.s = w.Start(db, busy, -1)
	return busy.s
}

// PatientService delays refusals for so long that a return on a slow machine is in time.
func (w *World) PatientService(db *postgres.DB) *leasing.Service {
	busy := &busyProxies{w: w}
	busy.s = w.StartWith(db, busy, leasing.Config{Window: Window, HeadroomPeriod: -1, RefusalGracePeriod: time.Second})
	return busy.s
}

// RecallingService switches pools to escrow mode as soon as possible.
func (w *World) RecallingService(db *postgres.DB, pusher leasing.Pusher) *leasing.Service {
	return w.Start(db, pusher, 1)
}

// Start starts the leasing service of a replica.
func (w *World) Start(db *postgres.DB, pusher leasing.Pusher, headroomPeriod time.Duration) *leasing.Service {
	return w.StartWith(db, pusher, leasing.Config{Window: Window, HeadroomPeriod: headroomPeriod})
}

// withoutSweeps is a store whose service does not fence or close sessions each second of real time: tests sweep when they expect it.
type withoutSweeps struct{ *leasestore.Leases }

func (withoutSweeps) Sweep(context.Context, time.Duration, time.Duration, bool) (closed int, err error) {
	return 0, nil
}

// StartWith starts the leasing service of a replica with a configuration; it does not sweep by itself.
func (w *World) StartWith(db *postgres.DB, pusher leasing.Pusher, cfg leasing.Config) *leasing.Service {
	s := leasing.New(cfg, withoutSweeps{leasestore.NewLeases(db)}, pusher, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	s.Start(w.T.Context())
	w.T.Cleanup(s.Stop)
	return s
}

// busyProxies answer every recall and return nothing: they have no idle units.
type busyProxies struct {
	leasing.Pusher // announcements are not made
	w              *World
	s              *leasing.Service
}

func (p *busyProxies) Connected() bool { return true }

func (p *busyProxies) Recall(session wire.SessionID, r wire.Recall) error {
	v := wire.LeaseReport{Pool: r.Pool, Generation: r.Generation}
	v.GrantedSeen = Scalar[int64](p.w, "select granted from leases where pool_id = $1 and session_id = $2", r.Pool, session)
	v.Returned = Scalar[int64](p.w, "select returned from leases where pool_id = $1 and session_id = $2", r.Pool, session)
	boot := Scalar[string](p.w, "select boot_id from proxy_sessions where id = $1", session)
	p.s.Return(&wire.Return{
		V:       wire.Version,
		Session: session,
		BootID:  boot,
		Account: r.Account,
		Reports: []wire.LeaseReport{v},
	}, func(wire.ReturnResponse) {})
	return nil
}

// Ask sends a lease request until it is decided, as a proxy does: on a slow machine a
// recall or a transaction can time out.
func Ask(s *leasing.Service, op *wire.LeaseRequest) wire.LeaseResponse {
	answer := make(chan wire.LeaseResponse, 1)
	for {
		s.Request(op, func(r wire.LeaseResponse) { answer <- r })
		if r := <-answer; r.Status != wire.Wait && r.Status != wire.Unavailable {
			return r
		}
	}
}

// ReturnUnits sends a return until it is accepted or refused.
func ReturnUnits(s *leasing.Service, ret *wire.Return) wire.ReturnResponse {
	answer := make(chan wire.ReturnResponse, 1)
	for {
		s.Return(ret, func(r wire.ReturnResponse) { answer <- r })
		if r := <-answer; r.Status != wire.Unavailable {
			return r
		}
	}
}

// CloseSession closes a session and checks whether that was possible.
func (w *World) CloseSession(store *leasestore.Leases, s wire.SessionID, boot string, count int64, want bool) {
	w.T.Helper()
	got, err := store.Close(w.T.Context(), &wire.CloseRequest{
		V:          wire.Version,
		Session:    s,
		BootID:     boot,
		FinalCount: count,
	})
	if err != nil || got != want {
		w.T.Errorf("close session %d: %v, %v; want %v", s, got, err, want)
	}
}

// Event returns the usage event of a finished request.
func (c *Customer) Event(s wire.SessionID, n, cost int64) event.Usage {
	now := time.Now().UnixMilli()
	return event.Usage{
		V:            event.Version,
		RequestID:    ident.Request.New(),
		Session:      int64(s),
		Seq:          n,
		AccountID:    c.AccountID(),
		KeyID:        c.KeyID(),
		Model:        "model",
		Format:       "chat",
		Status:       event.Completed,
		StartedMS:    now,
		FinishedMS:   now,
		Usage:        price.Usage{Input: cost},
		Rule:         event.RuleReported,
		PriceVersion: 1,
		Cost:         money.Nano(cost),
	}
}

// Batch returns a message of the usage stream with the events.
func Batch(t testing.TB, session int64, events ...event.Usage) []byte {
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

// Settle settles events of one session, as one message.
func (w *World) Settle(db *postgres.DB, events ...event.Usage) settle.Result {
	w.T.Helper()
	return w.SettleItems(db, settle.DecodeBatch(Batch(w.T, events[0].Session, events...)))
}

// SettleItems settles what was read of messages.
func (w *World) SettleItems(db *postgres.DB, items []settle.Item) settle.Result {
	w.T.Helper()
	result, err := settle.New(moneystore.NewSettlement(db), nil).Settle(w.T.Context(), items)
	if err != nil {
		w.T.Fatal(err)
	}
	return result
}

// CheckPools checks conservation while others write.
func (w *World) CheckPools() {
	w.T.Helper()
	n := Scalar[int](w, `
		select count(*) from (
			select p.id from pools p left join leases l on l.pool_id = p.id
			group by p.id having p.total <> p.free + p.settled + coalesce(sum(l.granted - l.returned - l.charged), 0)
		) as off`)
	if n != 0 {
		w.T.Errorf("%d pools violate conservation", n)
	}
}

// Begin starts a transaction that a test holds open.
func (w *World) Begin() pgx.Tx {
	w.T.Helper()
	tx, err := w.SQL.Begin(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(w.T.Context())) })
	return tx
}

// In runs a statement in a transaction.
func (w *World) In(tx pgx.Tx, query string, args ...any) {
	w.T.Helper()
	if _, err := tx.Exec(w.T.Context(), query, args...); err != nil {
		w.T.Fatalf("%s: %v", query, err)
	}
}

// Commit commits a transaction that Begin started.
func (w *World) Commit(tx pgx.Tx) {
	w.T.Helper()
	if err := tx.Commit(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
}
