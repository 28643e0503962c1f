package bus_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
	"modelgateway/shared/platform/heap"
	"modelgateway/shared/price"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

const (
	benchAccounts = 1000
	benchProxies  = 4
	// benchBatch is the number of events in a message, as under load.
	benchBatch = 500
	// benchDuplicateEvery makes every tenth batch be delivered twice.
	benchDuplicateEvery = 10
)

// BenchmarkSettlement settles b.N queued events of 1,000 accounts and four
// proxies, a tenth of the batches delivered twice, and checks the totals
// afterwards. Use -benchtime=1000000x. It reports events per second, and the CPU
// time per event of this process, of Postgres, of NATS and of all three, with and
// without the checks of costs and leases.
func BenchmarkSettlement(b *testing.B) {
	b.Run("checks", func(b *testing.B) { benchmarkSettlement(b, true) })
	b.Run("nochecks", func(b *testing.B) { benchmarkSettlement(b, false) })
}

func benchmarkSettlement(b *testing.B, checks bool) {
	b.Cleanup(heap.Tune()) // as the control plane does
	q := newQueue(b)
	q.fill(b.N)
	replica, err := bus.Connect(bus.Config{URL: q.server.url, Name: "replica"}, &streamCounter{}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer replica.Close()
	before := q.cpu()
	b.ResetTimer()
	store := moneystore.NewSettlement(postgres.Wrap(q.sql))
	settler := settle.New(store, nil)
	if checks {
		settler = settle.New(store, store)
	}
	replica.ConsumeUsage(settler, prometheus.NewRegistry(), nil)
	q.awaitEmpty()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	var all time.Duration
	for part, used := range q.cpu() {
		used -= before[part]
		all += used
		b.ReportMetric(float64(used.Microseconds())/float64(b.N), "µs-"+part+"/event")
	}
	b.ReportMetric(float64(all.Microseconds())/float64(b.N), "µs-all/event")
	replica.Stop()
	q.checkTotals(b.N)
}

// usageQueue is a usage stream of unsettled events.
type usageQueue struct {
	b        *testing.B
	server   *natsProcess
	sql      *pgxpool.Pool
	stream   jetstream.JetStream
	acks     *nats.Subscription
	accounts []benchCustomer
	sessions []wire.SessionID
	cost     money.Nano
	sheet    price.Sheet
}

type benchCustomer struct{ account, key string }

func newQueue(b *testing.B) *usageQueue {
	b.Helper()
	q := &usageQueue{b: b, server: startNATS(b), sql: pgtest.New(b)}
	db := postgres.Wrap(q.sql)
	for range benchProxies {
		reply, err := leasestore.NewLeases(db).Register(b.Context(), &wire.RegisterRequest{Name: "proxy", BootID: rand.Text()}, time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		q.sessions = append(q.sessions, reply.Session)
	}
	batch := &pgx.Batch{}
	for range benchAccounts {
		account, key := ident.New(), ident.New()
		q.accounts = append(q.accounts, benchCustomer{ident.Account.Format(account), ident.Key.Format(key)})
		batch.Queue("insert into accounts (id, name, max_concurrent_requests, revision) values ($1, 'customer', 5, 1)", account)
		batch.Queue("insert into api_keys (id, account_id, name, lookup_hash, revision) values ($1, $2, 'key', $3, 1)", key, account, append(key[:], account[:]...))
		batch.Queue("insert into pools (account_id, kind) values ($1, 1), ($1, 3)", account)
		batch.Queue("insert into pools (account_id, kind, key_id, unlimited) values ($1, 2, $2, true)", account, key)
	}
	if err := q.sql.SendBatch(b.Context(), batch).Close(); err != nil {
		b.Fatal(err)
	}
	q.addPriceAndLeases()
	declared, err := bus.Connect(bus.Config{URL: q.server.url, Name: "declare"}, &streamCounter{}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer declared.Close()
	if err := declared.Declare(b.Context()); err != nil {
		b.Fatal(err)
	}
	connection, err := nats.Connect(q.server.url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(connection.Close)
	if q.stream, err = jetstream.New(connection); err != nil {
		b.Fatal(err)
	}
	if q.acks, err = connection.SubscribeSync("$JS.ACK." + subject.UsageStream + ".>"); err != nil {
		b.Fatal(err)
	}
	return q
}

// addPriceAndLeases adds the price of the events' model, and an empty lease of each
// account in each session.
func (q *usageQueue) addPriceAndLeases() {
	q.b.Helper()
	q.sheet = price.Sheet{Rates: price.Rates{price.Input: 250_000_000, price.CachedInput: 25_000_000, price.Output: 2_000_000_000}}
	text, err := json.Marshal(q.sheet)
	if err != nil {
		q.b.Fatal(err)
	}
	_, err = q.sql.Exec(q.b.Context(), "insert into models (id, type, enabled, public, spec, revision) values ('demo-chat', 'text', true, false, '{}', 1)")
	if err == nil {
		err = q.sql.QueryRow(q.b.Context(),
			"insert into model_prices (model_id, sheet, effective_from) values ('demo-chat', $1, now()) returning version", text).Scan(&q.sheet.Version)
	}
	if err == nil {
		_, err = q.sql.Exec(q.b.Context(), "insert into leases (pool_id, session_id) select p.id, s.id from pools p, proxy_sessions s where p.kind = 1")
	}
	if err != nil {
		q.b.Fatal(err)
	}
}

// fill publishes n events in batches, from each proxy in turn.
func (q *usageQueue) fill(n int) {
	q.b.Helper()
	seqs := make([]int64, len(q.sessions))
	for batch := 0; n > 0; batch++ {
		from := batch % len(q.sessions)
		events := make([]json.RawMessage, min(n, benchBatch))
		for i := range events {
			seqs[from]++
			events[i] = q.event(q.sessions[from], seqs[from])
		}
		n -= len(events)
		message := event.Batch{V: event.Version, BatchID: rand.Text(), Session: int64(q.sessions[from]), Events: events}
		payload := message.AppendJSON(nil)
		q.publish(q.sessions[from], payload)
		if batch%benchDuplicateEvery == 0 {
			q.publish(q.sessions[from], payload)
		}
	}
	select {
	case <-q.stream.PublishAsyncComplete():
	case <-q.b.Context().Done():
		q.b.Fatal("the events were not published")
	}
}

func (q *usageQueue) publish(session wire.SessionID, payload []byte) {
	if _, err := q.stream.PublishAsync(subject.Usage("proxy", int64(session)), payload, jetstream.WithMsgID(rand.Text())); err != nil {
		q.b.Fatal(err)
	}
}

// event returns the event of a typical chat request with cached input, of a random
// account.
func (q *usageQueue) event(session wire.SessionID, seq int64) json.RawMessage {
	customer := q.accounts[mathrand.IntN(len(q.accounts))]
	now := time.Now().UnixMilli()
	e := event.Usage{
		V: event.Version, RequestID: ident.Request.New(), Session: int64(session), Seq: seq, AccountID: customer.account, KeyID: customer.key,
		Model: "demo-chat", Format: "chat", Provider: "simulator", Route: "rte_0192f0c1d2e37a4b8c5d6e7f8091a2b3", ProviderRequestID: "req_" + rand.Text(),
		Status: event.Completed, HTTPStatus: 200, Stream: seq%2 == 0, StartedMS: now - 900, FinishedMS: now, FirstByteMS: 120,
		Usage: price.Usage{Input: 1200 + seq%700, CachedInput: 512, Output: 300 + seq%90, Reasoning: 64}, Rule: event.RuleReported,
		PriceVersion: q.sheet.Version, Reservation: 9_000_000, MaxInput: 128_000, MaxOutput: 4096,
	}
	var err error
	if e.Cost, err = price.Cost(&e.Usage, &q.sheet); err != nil {
		q.b.Fatal(err)
	}
	q.cost += e.Cost
	return e.AppendJSON(nil)
}

// awaitEmpty waits until every message of the stream has been acknowledged.
func (q *usageQueue) awaitEmpty() {
	q.b.Helper()
	stream, err := q.stream.Stream(q.b.Context(), subject.UsageStream)
	if err != nil {
		q.b.Fatal(err)
	}
	acknowledged := map[string]bool{}
	for uint64(len(acknowledged)) < stream.CachedInfo().State.Msgs {
		ack, err := q.acks.NextMsgWithContext(q.b.Context())
		if err != nil {
			q.b.Fatal(err)
		}
		if string(ack.Data) == "+ACK" {
			acknowledged[strings.Split(ack.Subject, ".")[5]] = true // $JS.ACK.stream.consumer.deliveries.sequence.…
		}
	}
}

// checkTotals fails the benchmark if an event was settled twice or not at all.
func (q *usageQueue) checkTotals(n int) {
	q.b.Helper()
	for query, want := range map[string]int64{
		"select count(*) from usage_records":                                                                  int64(n),
		"select coalesce(sum(cost), 0)::bigint from usage_records":                                            int64(q.cost),
		"select coalesce(-sum(amount), 0)::bigint from ledger_entries where account_id is not null":           int64(q.cost),
		"select coalesce(sum(settled), 0)::bigint from pools where kind = 1":                                  int64(q.cost),
		"select coalesce(sum(settled), 0)::bigint from pools where kind = 2":                                  int64(q.cost),
		"select count(*) from quarantine":                                                                     0,
		"select coalesce(sum(upper(r) - lower(r)), 0)::bigint from proxy_sessions, unnest(settled_seqs) as r": int64(n),
		`select count(*) from pools p where total <> free + settled + (
			select coalesce(sum(granted - returned - charged), 0) from leases where pool_id = p.id)`: 0,
	} {
		var got int64
		if err := q.sql.QueryRow(q.b.Context(), query).Scan(&got); err != nil {
			q.b.Fatalf("%s: %v", query, err)
		}
		if got != want {
			q.b.Errorf("%s: got %d; want %d", query, got, want)
		}
	}
}

// serveNATSVariable makes the test binary a NATS server.
const serveNATSVariable = "MGW_BENCH_SERVE_NATS"

func TestMain(m *testing.M) {
	if os.Getenv(serveNATSVariable) == "" {
		os.Exit(m.Run())
	}
	if err := serveNATS(os.Getenv(serveNATSVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveNATS serves until the standard input ends. It writes the URL to the standard output.
func serveNATS(dir string) error {
	running, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return err
	}
	running.Start()
	fmt.Println(running.ClientURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	running.Shutdown()
	running.WaitForShutdown()
	return err
}

// natsProcess is a NATS server in a process of its own, so that its CPU time can be told apart.
type natsProcess struct {
	url string
	pid int
}

func startNATS(b *testing.B) *natsProcess {
	b.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(b.Context()), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), serveNATSVariable+"="+b.TempDir()), os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(input.Close(), cmd.Wait()); err != nil {
			b.Errorf("stop NATS: %v", err)
		}
	})
	url, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		b.Fatalf("start NATS: %v", err)
	}
	return &natsProcess{strings.TrimSpace(url), cmd.Process.Pid}
}

// cpu returns the CPU time of this process, of the Postgres processes of this database or of all, and of NATS.
func (q *usageQueue) cpu() map[string]time.Duration {
	q.b.Helper()
	rows, err := q.sql.Query(q.b.Context(), "select pid from pg_stat_activity where datname = current_database() or datname is null")
	if err != nil {
		q.b.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		q.b.Fatal(err)
	}
	used := map[string]time.Duration{"go": cpuOf(os.Getpid()), "nats": cpuOf(q.server.pid)}
	for _, pid := range pids {
		used["postgres"] += cpuOf(pid)
	}
	return used
}

// cpuOf returns the CPU time of a process, or zero where /proc has no such information.
func cpuOf(pid int) (sum time.Duration) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name may contain anything
	fields := strings.Fields(after)
	for _, i := range []int{11, 12} { // user and system time, in hundredths of a second
		ticks, _ := strconv.ParseInt(fields[i], 10, 64)
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum
}
