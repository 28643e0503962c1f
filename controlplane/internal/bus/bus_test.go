package bus_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/outbox"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/apikey"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/natsuser"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// longWindow is longer than a test: no session is to end by the clock.
const longWindow = time.Hour

// env is a NATS server and a database, with one account and one session.
type env struct {
	t      *testing.T
	server *natstest.Server
	// proxy is the connection of a proxy.
	proxy *nats.Conn
	sql   *pgxpool.Pool
	db    *postgres.DB

	account, key   ident.UUID
	hash           apikey.Hash
	balance, slots wire.PoolID
	session        wire.SessionID
}

func newEnv(t *testing.T) *env { return newEnvWith(t, "proxy") }

// newEnvWith returns an env with the users of these proxies, the first of which has
// the session.
func newEnvWith(t *testing.T, proxies ...string) *env {
	t.Helper()
	p := &env{t: t, server: natstest.New(t, natstest.Planes(t, proxies...)), sql: pgtest.New(t), account: ident.New(), key: ident.New()}
	p.proxy, p.db = p.connectProxy(proxies[0]), postgres.Wrap(p.sql)
	p.hash = apikey.Hash(append(p.key[:], p.account[:]...))
	p.exec("insert into accounts (id, name, max_concurrent_requests, revision) values ($1, 'customer', 5, 1)", p.account)
	p.exec("insert into api_keys (id, account_id, name, lookup_hash, revision) values ($1, $2, 'key', $3, 1)", p.key, p.account, p.hash[:])
	p.balance = wire.PoolID(p.queryInt("insert into pools (account_id, kind, total, free) values ($1, 1, 1000000, 1000000) returning id", p.account))
	p.slots = wire.PoolID(p.queryInt("insert into pools (account_id, kind, total, free) values ($1, 3, 5, 5) returning id", p.account))
	p.exec("insert into pools (account_id, kind, key_id, unlimited) values ($1, 2, $2, true)", p.account, p.key)
	reply, err := leasestore.NewLeases(p.db).Register(t.Context(), &wire.RegisterRequest{Name: "proxy", BootID: "boot"}, longWindow)
	if err != nil {
		t.Fatal(err)
	}
	p.session = reply.Session
	p.exec("update proxy_sessions set window_ms = 1") // replicas with the shortest windows confirm what its proxy may not know
	return p
}

// connectProxy connects as a proxy, with the permissions that it has in production.
func (p *env) connectProxy(name string) *nats.Conn {
	p.t.Helper()
	return p.server.Connect(nats.UserInfo(natsuser.NameOf(name), natstest.Password), nats.CustomInboxPrefix(subject.Inbox(name)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.t.Errorf("proxy %s: %v", name, err) }))
}

// violations is a log handler that fails the test when NATS refuses a message.
type violations struct {
	slog.Handler
	t *testing.T
}

func (v violations) Enabled(context.Context, slog.Level) bool { return true }

func (v violations) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if strings.Contains(a.Value.String(), nats.ErrPermissionViolation.Error()) {
			v.t.Errorf("%s: %s", r.Message, a.Value)
		}
		return true
	})
	return nil
}

func (p *env) exec(query string, args ...any) {
	p.t.Helper()
	if _, err := p.sql.Exec(p.t.Context(), query, args...); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
}

func (p *env) queryInt(query string, args ...any) (n int64) {
	p.t.Helper()
	if err := p.sql.QueryRow(p.t.Context(), query, args...).Scan(&n); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// streamCounter is a bus.StreamStore that counts how often the usage stream was created.
type streamCounter struct{ created atomic.Int64 }

func (i *streamCounter) UsageReplay(context.Context) (int64, *time.Time, error) { return 1, nil, nil }

func (i *streamCounter) RecordNewStream(context.Context) error {
	i.created.Add(1)
	return nil
}

// connectReplica connects the bus of one replica, with all streams declared.
func (p *env) connectReplica(streams bus.StreamStore) *bus.Bus {
	p.t.Helper()
	b, err := bus.Connect(bus.Config{URL: p.server.URL(), User: natsuser.ControlPlane, Password: natstest.Password, Name: "replica"}, streams,
		slog.New(violations{slog.DiscardHandler, p.t}))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(b.Close)
	p.t.Cleanup(b.Stop)
	if err := b.Declare(await.Context(p.t)); err != nil {
		p.t.Fatal(err)
	}
	return b
}

func (p *env) consume(b *bus.Bus) {
	b.ConsumeUsage(settle.New(moneystore.NewSettlement(p.db), nil), prometheus.NewRegistry(), nil)
}

// usage returns a message with the events of these sequence numbers, which cost 10
// each.
func (p *env) usage(seqs ...int64) []byte {
	p.t.Helper()
	b := event.Batch{V: event.Version, BatchID: rand.Text(), Session: int64(p.session)}
	for _, n := range seqs {
		now := time.Now().UnixMilli()
		raw, err := json.Marshal(event.Usage{
			V: event.Version, RequestID: ident.Request.New(), Session: int64(p.session), Seq: n, AccountID: ident.Account.Format(p.account),
			KeyID: ident.Key.Format(p.key), Model: "model", Format: "chat", Status: event.Completed, StartedMS: now, FinishedMS: now, Cost: 10,
		})
		if err != nil {
			p.t.Fatal(err)
		}
		b.Events = append(b.Events, raw)
	}
	payload, err := json.Marshal(b)
	if err != nil {
		p.t.Fatal(err)
	}
	return payload
}

// publish publishes a message to the usage stream.
func (p *env) publish(payload []byte) {
	p.t.Helper()
	js := natstest.JetStream(p.t, p.proxy)
	if _, err := js.Publish(p.t.Context(), subject.Usage("proxy", int64(p.session)), payload, jetstream.WithMsgID(rand.Text())); err != nil {
		p.t.Fatal(err)
	}
}

// subscribeWatermarks subscribes to the session's watermarks.
func (p *env) subscribeWatermarks() *nats.Subscription {
	p.t.Helper()
	sub, err := p.proxy.SubscribeSync(subject.Settled(int64(p.session)))
	if err != nil {
		p.t.Fatal(err)
	}
	natstest.Flush(p.t, p.proxy)
	return sub
}

// awaitWatermark waits until the session's watermark is n.
func (p *env) awaitWatermark(marks *nats.Subscription, n int64) {
	p.t.Helper()
	for {
		m, err := marks.NextMsgWithContext(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		var mark event.Settled
		if err := json.Unmarshal(m.Data, &mark); err != nil {
			p.t.Fatal(err)
		}
		if mark.Session == int64(p.session) && mark.Watermark == n {
			return
		}
	}
}

func (p *env) wantSettled(want int64) {
	p.t.Helper()
	if got := p.queryInt("select settled from pools where id = $1", p.balance); got != want {
		p.t.Errorf("the balance pool has %d settled; want %d", got, want)
	}
}

func TestTwoReplicasSettleUsageOnce(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	streams := new(streamCounter)
	marks := p.subscribeWatermarks()
	first, second := p.connectReplica(streams), p.connectReplica(streams)
	p.consume(first)
	p.consume(second)
	var payloads [][]byte
	for n := int64(1); n <= 60; n += 3 {
		payloads = append(payloads, p.usage(n, n+1, n+2))
	}
	for _, payload := range append(payloads, payloads[:5]...) { // some are delivered twice
		p.publish(payload)
	}
	p.publish([]byte("not a batch"))
	p.awaitWatermark(marks, 60)
	p.wantSettled(600)

	// Both replicas stop. A message published meanwhile is settled by the next one.
	second.Stop()
	first.Stop()
	p.publish(p.usage(61))
	p.consume(p.connectReplica(streams))
	p.awaitWatermark(marks, 61)
	p.wantSettled(610)
	if got := streams.created.Load(); got != 1 {
		t.Errorf("the stream was created %d times; want once", got)
	}
	if got := p.queryInt("select count(*) from quarantine"); got != 1 {
		t.Errorf("%d events in quarantine; want 1", got)
	}
}

// The creation is recorded, so that the proxies publish their unsettled events
// again, which are settled once.
func TestMessagesShareASettlement(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	marks := p.subscribeWatermarks()
	registry := prometheus.NewRegistry()
	p.connect(bus.Config{GatherTime: time.Hour}).ConsumeUsage(settle.New(moneystore.NewSettlement(p.db), nil), registry, nil)
	p.publish(p.usage(1)) // after a pause, it is settled at once
	p.awaitWatermark(marks, 1)
	const full = 64 // messages; a full batch does not wait
	for seq := int64(2); seq < 2+full; seq++ {
		p.publish(p.usage(seq))
	}
	p.awaitWatermark(marks, 1+full)
	p.wantSettled(10 * (1 + full))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "mgw_settlement_batch_seconds" {
			continue
		}
		if n := family.GetMetric()[0].GetHistogram().GetSampleCount(); n != 2 {
			t.Errorf("%d messages were settled in %d settlements; want 2", 1+full, n)
		}
		return
	}
	t.Error("settlements are not counted")
}

func TestDeletedUsageStreamIsCreatedAgain(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	streams := new(streamCounter)
	marks := p.subscribeWatermarks()
	p.consume(p.connectReplica(streams))
	payload := p.usage(1, 2)
	p.publish(payload)
	p.awaitWatermark(marks, 2)

	js := natstest.JetStream(t, p.server.Connect())
	if err := js.DeleteStream(t.Context(), subject.UsageStream); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the consumer to find that the stream is missing", func() bool { return streams.created.Load() >= 2 })
	await.Until(t, "the new stream", func() bool {
		_, err := js.Stream(t.Context(), subject.UsageStream)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	p.publish(payload)
	p.publish(p.usage(3))
	p.awaitWatermark(marks, 3)
	p.wantSettled(30)
}

// failingStore is a settle.Store whose first settlements fail.
type failingStore struct {
	settle.Store
	failures atomic.Int64
}

func (f *failingStore) Settle(ctx context.Context, items []settle.Item) (settle.Result, error) {
	if f.failures.Add(-1) >= 0 {
		return settle.Result{}, errors.New("settlement failed")
	}
	return f.Store.Settle(ctx, items)
}

func TestUsageIsAcknowledgedOnlyAfterSettlement(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	marks := p.subscribeWatermarks()
	store := &failingStore{Store: moneystore.NewSettlement(p.db)}
	store.failures.Store(2)
	b := p.connectReplica(new(streamCounter))
	b.ConsumeUsage(settle.New(store, nil), prometheus.NewRegistry(), nil)
	p.publish(p.usage(1))
	p.awaitWatermark(marks, 1)
	p.wantSettled(10)
	b.Stop()
	js := natstest.JetStream(t, p.server.Connect())
	consumer, err := js.Consumer(t.Context(), subject.UsageStream, subject.UsageConsumer)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := consumer.Info(t.Context()); err != nil || info.NumPending != 0 {
		t.Errorf("%d messages are not acknowledged, error %v", info.NumPending, err)
	}
}

func TestBusReconnectsAfterServerRestart(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	marks := p.subscribeWatermarks()
	b := p.connectReplica(new(streamCounter))
	p.consume(b)
	p.publish(p.usage(1))
	p.awaitWatermark(marks, 1)
	p.server.Stop()
	await.Until(t, "the end of the connection", func() bool { return b.Ready(t.Context()) != nil })
	p.server.Start()
	await.Until(t, "the connections", func() bool { // a successful flush means that the subscriptions are restored
		return b.Ready(t.Context()) == nil && p.proxy.Flush() == nil
	})
	p.publish(p.usage(2))
	p.awaitWatermark(marks, 2)
	p.wantSettled(20)
}

// request sends a request as a proxy does, and returns the response.
func request[R any](p *env, name string, body any) R {
	p.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	m, err := p.proxy.RequestWithContext(p.t.Context(), subject.From(name, "proxy"), data)
	if err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	var response R
	if err := json.Unmarshal(m.Data, &response); err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	return response
}

// longSessions returns the settings of a replica whose stream of changes confirms nothing.
func longSessions(b *bus.Bus) leasing.Config {
	return leasing.Config{Window: longWindow, Changes: b, Append: func(context.Context, wire.KeyChange) error { return nil }}
}

func (p *env) serve() (*bus.Bus, *leasing.Service) {
	p.t.Helper()
	b := p.connectReplica(new(streamCounter))
	s := leasing.New(longSessions(b), leasestore.NewLeases(p.db), b, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	s.Start(p.t.Context())
	p.t.Cleanup(s.Stop)
	if err := b.Serve(s); err != nil {
		p.t.Fatal(err)
	}
	return b, s
}

// slowBalances is a store whose reads of balances wait.
type slowBalances struct {
	leasing.Store
	began   chan struct{}
	release chan struct{}
}

func (s *slowBalances) Balance(ctx context.Context, r *wire.BalanceRequest) (*wire.BalanceResponse, error) {
	select {
	case s.began <- struct{}{}:
	default:
	}
	<-s.release
	return s.Store.Balance(ctx, r)
}

// Clients may ask for balances at any rate; sessions must not end because of them.
func TestHeartbeatsDoNotWaitForBalances(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connectReplica(new(streamCounter))
	slow := &slowBalances{Store: leasestore.NewLeases(p.db), began: make(chan struct{}, 1), release: make(chan struct{})}
	s := leasing.New(longSessions(b), slow, b, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err := b.Serve(s); err != nil {
		t.Fatal(err)
	}
	defer close(slow.release)
	query, err := json.Marshal(wire.BalanceRequest{AccountID: ident.Account.Format(p.account), KeyID: ident.Key.Format(p.key)})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := p.proxy.PublishRequest(subject.From(subject.Balance, "proxy"), subject.Inbox("proxy")+".nobody", query); err != nil {
			t.Fatal(err)
		}
	}
	<-slow.began
	got := request[wire.HeartbeatResponse](p, subject.Heartbeat, &wire.HeartbeatRequest{Session: p.session, BootID: "boot"})
	if got.Status != wire.Done {
		t.Errorf("heartbeat: got %+v; want it to be answered", got)
	}
}

func TestServeHandlesEveryRequestOfAProxy(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b, _ := p.serve()
	account, key := ident.Account.Format(p.account), ident.Key.Format(p.key)

	registered := request[wire.RegisterResponse](p, subject.Register, &wire.RegisterRequest{V: wire.Version, Name: "proxy", BootID: "two"})
	if registered.Status != wire.Done || registered.Session <= p.session || registered.WindowMS != longWindow.Milliseconds() {
		t.Errorf("registration: %+v", registered)
	}
	s := registered.Session
	if got := request[wire.HeartbeatResponse](p, subject.Heartbeat, &wire.HeartbeatRequest{Session: s, BootID: "two", AppliedRevision: registered.Revision}); got.Status != wire.Done {
		t.Errorf("heartbeat: %+v", got)
	}
	want := &wire.KeyRecord{KeyID: key, AccountID: account, Active: true, BalancePool: p.balance, SlotsPool: p.slots, MaxConcurrent: 5}
	if diff := cmp.Diff(want, lookUp(p)); diff != "" {
		t.Errorf("loaded key (-want +got):\n%s", diff)
	}
	h := holder.NewHolder(s, "two", account)
	ticket := h.Reserve([]wire.Need{{Pool: p.balance, Kind: wire.Balance, Amount: 30}, {Pool: p.slots, Kind: wire.Slots, Amount: 1}})
	reply := request[wire.LeaseResponse](p, subject.LeaseRequest, h.NextRequest())
	if h.HandleResponse(&reply); !ticket.Granted() {
		t.Fatalf("lease request: %+v", reply)
	}
	balance := request[wire.BalanceResponse](p, subject.Balance, &wire.BalanceRequest{AccountID: account, KeyID: key})
	if balance.Balance != 1_000_000 || balance.Reserved != 30 {
		t.Errorf("balance: %+v", balance)
	}
	h.Release(ticket, 0)
	if got := request[wire.ReturnResponse](p, subject.Return, h.NextReturn()); got.Status != wire.Done {
		t.Errorf("return: %+v", got)
	}
	for count, want := range []wire.Status{wire.Done, wire.Wait} {
		if got := request[wire.CloseResponse](p, subject.Close, &wire.CloseRequest{Session: s - wire.SessionID(count), BootID: []string{"two", "boot"}[count], FinalCount: int64(count)}); got.Status != want {
			t.Errorf("close with %d events: %+v; want %s", count, got, want)
		}
	}
	// A request that fails gets the response unavailable.
	if got := request[wire.BalanceResponse](p, subject.Balance, &wire.BalanceRequest{AccountID: "nobody"}); got.Status != wire.Unavailable {
		t.Errorf("balance of an invalid account id: %+v; want unavailable", got)
	}
	// A message that cannot be decoded is dropped, and later ones are handled.
	if err := p.proxy.PublishRequest(subject.From(subject.LeaseRequest, "proxy"), subject.Inbox("proxy")+".nobody", []byte("{")); err != nil {
		t.Fatal(err)
	}
	if got := request[wire.LeaseResponse](p, subject.LeaseRequest, &wire.LeaseRequest{Session: s, Account: account, Number: 9}); got.Status != wire.Fenced {
		t.Errorf("lease request of a closed session: %+v; want fenced", got)
	}
	b.Stop()
	if _, err := p.proxy.RequestWithContext(t.Context(), subject.From(subject.Balance, "proxy"), nil); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("request after Stop: %v; want no responders", err)
	}
}

func TestMoreRequestsThanWorkersAreAllAnswered(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	first, _ := p.serve()
	p.serve()
	var asking sync.WaitGroup
	for range 300 {
		asking.Go(func() { lookUp(p) })
	}
	asking.Wait()
	first.Stop()
	lookUp(p)
}

// lookUp returns the record of the key, or nil at the end of the test. It asks again, as a proxy does: a lookup that has waited for
// longer than proxies wait for it gets no answer, and one that the database did not answer in time gets the answer unavailable.
func lookUp(p *env) *wire.KeyRecord {
	p.t.Helper()
	data, _ := json.Marshal(&wire.LoadKeyRequest{KeyHash: p.hash}) // cannot fail
	for p.t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Second)
		m, err := p.proxy.RequestWithContext(ctx, subject.From(subject.LoadKey, "proxy"), data)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}

		var reply wire.LoadKeyResponse
		if err == nil {
			err = json.Unmarshal(m.Data, &reply)
		}
		if err == nil && reply.Status == wire.Unavailable {
			continue
		}
		if err != nil || reply.Status != wire.Done {
			p.t.Errorf("look up the key: %v, status %q", err, reply.Status)
		}
		return reply.Record
	}

	return nil
}

func TestAnnouncedChangeIsPushedAndConfirmed(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	_, s := p.serve()
	p.exec("update api_keys set revoked_at = now() where id = $1", p.key) // only a committed change is announced
	want := wire.KeyChange{V: wire.Version, Revision: 8, PreviousRevision: 7, Kind: wire.KeyRevoked, KeyHash: p.hash, Account: ident.Account.Format(p.account)}
	pushed := make(chan wire.KeyChange, 10)
	_, err := p.proxy.Subscribe(subject.KeyChange, func(m *nats.Msg) {
		var c wire.KeyChange
		if err := json.Unmarshal(m.Data, &c); err != nil {
			t.Error(err)
		}
		pushed <- c
		for _, ack := range []any{"garbage", wire.Ack{Session: p.session, Revision: 7}, wire.Ack{V: wire.Version, Session: p.session, Revision: 8}} {
			data, _ := json.Marshal(ack) // cannot fail
			to, _ := subject.Answer(m.Reply, "proxy")
			if err := p.proxy.Publish(to, data); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, p.proxy)
	confirmation, err := s.Announce(t.Context(), want)
	if err != nil || !confirmation.Effective || len(confirmation.Confirmed) != 1 {
		t.Fatalf("got %+v, %v; want it effective and confirmed by one proxy", confirmation, err)
	}
	if diff := cmp.Diff(want, <-pushed); diff != "" {
		t.Errorf("pushed change (-want +got):\n%s", diff)
	}
}

// Any replica may write, if it knows the bucket's last change.
func TestCatalogBucketRejectsOutdatedWriters(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b, other := p.connectReplica(new(streamCounter)), p.connectReplica(new(streamCounter))
	ctx := await.Context(t)
	if keys, err := b.Keys(ctx); err != nil || len(keys) != 0 {
		t.Errorf("keys of an empty bucket: %v, %v", keys, err)
	}
	first, err := b.Position(ctx)
	if err != nil {
		t.Fatal(err)
	}
	at := first
	put := func(by *bus.Bus, key string, value []byte) {
		t.Helper()
		if at, err = by.Put(ctx, catalog.Entry{Subject: key, Payload: value}, at); err != nil {
			t.Fatal(err)
		}
	}
	model := subject.CatalogKey(subject.KindModel, "a/b c.d")
	for _, value := range []string{"1", "2"} {
		put(b, model, []byte(value))
		put(other, subject.CatalogHead, []byte(value))
	}
	if seen, err := b.Position(ctx); err != nil || seen != at {
		t.Errorf("position: got %d, %v; want %d", seen, err, at)
	}
	if _, err := b.Put(ctx, catalog.Entry{Subject: model, Payload: []byte("0")}, first); !errors.Is(err, outbox.ErrOvertaken) {
		t.Errorf("write at an outdated position: got %v; want ErrOvertaken", err)
	}
	if got, err := b.Get(ctx, model); err != nil || string(got) != "2" {
		t.Errorf("got %q, %v; want the last value", got, err)
	}
	keys, err := b.Keys(ctx)
	slices.Sort(keys)
	if diff := cmp.Diff([]string{subject.CatalogHead, model}, keys); diff != "" || err != nil {
		t.Errorf("keys, %v (-want +got):\n%s", err, diff)
	}
	for range 2 { // deleting twice has no effect
		put(b, model, nil)
	}
	for _, key := range []string{model, "never.written"} {
		if got, err := b.Get(ctx, key); err != nil || got != nil {
			t.Errorf("%s: got %q, %v; want nothing", key, got, err)
		}
	}
	if keys, err := b.Keys(ctx); err != nil || len(keys) != 1 {
		t.Errorf("keys after deletion: %v, %v; want only the head", keys, err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if keys, err := b.Keys(over); err == nil {
		t.Errorf("an incomplete list was returned without an error: %v", keys)
	}
}

func TestConnectFailsWithoutServer(t *testing.T) {
	t.Parallel()
	server := natstest.New(t)
	url := server.URL()
	server.Stop()
	if _, err := bus.Connect(bus.Config{URL: url}, new(streamCounter), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("connected to a stopped server")
	}
}
