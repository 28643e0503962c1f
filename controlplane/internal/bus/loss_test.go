package bus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/changestream"
	"modelgateway/controlplane/internal/leasing"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/moneystore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/holder"
	"modelgateway/shared/lease/rollback"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/platform/retry"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// restorableEnv is an env whose database can be replaced by an older copy.
type restorableEnv struct {
	*env
	url, admin, name string
}

func newRestorableEnv(t *testing.T) *restorableEnv {
	t.Helper()
	at := pgtest.URL(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	s := &restorableEnv{env: &env{t: t, server: natstest.New(t, natstest.Planes(t, "proxy")), account: ident.New(), key: ident.New()}, url: at, name: strings.TrimPrefix(u.Path, "/")}
	u.Path = "/postgres"
	s.admin = u.String()
	s.proxy = s.connectProxy("proxy")
	s.hash = apikey.Hash(append(s.key[:], s.account[:]...))
	return s
}

// open connects to the database as a replica does.
func (s *restorableEnv) open() {
	s.t.Helper()
	db, err := postgres.Open(s.t.Context(), postgres.Config{URL: s.url})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(db.Close)
	s.db, s.sql = db, db.Pool()
}

// execOnServer executes a statement on the server, connected to another database.
func (s *restorableEnv) execOnServer(format string, args ...any) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.admin)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(s.t.Context(), fmt.Sprintf(format, args...)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *restorableEnv) newMonitor(b *bus.Bus) *recovery.Monitor {
	s.t.Helper()
	a := changestream.New(leasestore.NewLeases(s.db), b, window, session.Margin, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	var running sync.WaitGroup
	running.Go(func() {
		for a.Begin(s.t.Context()) != nil && s.t.Context().Err() == nil { // nothing is read before the first check
			retry.Sleep(s.t.Context(), 10*time.Millisecond)
		}
		a.Run(s.t.Context())
	})
	s.t.Cleanup(running.Wait)
	return recovery.New(recovery.Config{
		ID: recovery.NewID(), Store: leasestore.NewRecovery(s.db), Bucket: b, Window: window, Keeps: rollback.KeepsOnRestart, EpochConfirmed: a.ConfirmedEpoch,
		OnEpoch: b.SetClusterEpoch, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
}

func (s *restorableEnv) startLeasing(b *bus.Bus) *leasing.Service {
	s.t.Helper()
	service := leasing.New(longSessions(b), leasestore.NewLeases(s.db), b, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	service.Start(s.t.Context())
	s.t.Cleanup(service.Stop)
	return service
}

const window = time.Second

// TestPostgresLosesCommits replaces the database by an older copy. The loss is
// declared, nothing is granted until the sessions from before have expired, their
// leases are restored, a confirmed revocation is restored, no id is used twice,
// and usage is settled from the stream again, each event once.
func TestPostgresLosesCommits(t *testing.T) {
	t.Parallel()
	s := newRestorableEnv(t)
	s.open()
	s.exec("insert into accounts (id, name, max_concurrent_requests, revision) values ($1, 'customer', 5, 1)", s.account)
	s.exec("insert into api_keys (id, account_id, name, lookup_hash, revision) values ($1, $2, 'key', $3, 1)", s.key, s.account, s.hash[:])
	s.balance = wire.PoolID(s.queryInt("insert into pools (account_id, kind, total, free) values ($1, 1, 1000, 1000) returning id", s.account))
	s.slots = wire.PoolID(s.queryInt("insert into pools (account_id, kind, total, free) values ($1, 3, 5, 5) returning id", s.account))
	s.exec("insert into pools (account_id, kind, key_id, unlimited) values ($1, 2, $2, true)", s.account, s.key)

	first := s.connect()
	monitor := s.newMonitor(first)
	s.check(monitor)
	s.db.Close()
	backup := s.name + "_copy"
	s.execOnServer("create database %s template %s", backup, s.name)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), s.admin)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close(context.Background()) }()
		_, _ = conn.Exec(context.Background(), "drop database if exists "+backup+" with (force)") // it was renamed if the test succeeded
	})

	// After the copy: a session, a reservation, settled usage, and a confirmed revocation.
	s.open()
	first.Close()
	second := s.connect()
	monitor = s.newMonitor(second)
	s.check(monitor)
	service := s.startLeasing(second)
	registered, err := service.Register(t.Context(), &wire.RegisterRequest{Name: "proxy", BootID: "boot"})
	if err != nil {
		t.Fatal(err)
	}
	s.session = registered.Session
	h := holder.NewHolder(s.session, "boot", ident.Account.Format(s.account))
	ticket := h.Reserve([]wire.Need{{Pool: s.balance, Kind: wire.Balance, Amount: 300}, {Pool: s.slots, Kind: wire.Slots, Amount: 1}})
	reply := s.requestLease(service, h.NextRequest())
	if h.HandleResponse(&reply); !ticket.Granted() {
		t.Fatalf("lease request before the loss: %+v", reply)
	}
	marks := s.subscribeWatermarks()
	second.ConsumeUsage(settle.New(moneystore.NewSettlement(s.db), nil), prometheus.NewRegistry(), nil)
	s.publish(s.usage(1, 2))
	s.awaitWatermark(marks, 2)
	change := s.revoke()
	s.check(monitor) // the membership now has a commit marker later than all of this
	confirmed, err := service.Announce(t.Context(), change)
	if err != nil || !confirmed.Effective {
		t.Fatalf("revocation: %+v, %v", confirmed, err)
	}

	// The copy replaces the database. Nothing is served from it before the loss is declared.
	service.Stop()
	second.Stop()
	second.Close()
	s.db.Close()
	s.execOnServer("drop database %s with (force)", s.name)
	s.execOnServer("alter database %s rename to %s", backup, s.name)
	s.open()
	third := s.connect()
	s.check(s.newMonitor(third))
	service = s.startLeasing(third)

	if got := s.queryInt("select count(*) from api_keys where revoked_at is not null"); got != 1 {
		t.Error("the revocation was lost")
	}
	again, err := service.Register(t.Context(), &wire.RegisterRequest{
		Name: "proxy", BootID: "boot", Earlier: []wire.EarlierSession{{Session: s.session, BootID: "boot"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if again.Session <= registered.Session || again.ClusterEpoch != 2 || again.Revision <= change.Revision {
		t.Errorf("registration after the loss: %+v; before it: %+v", again, registered)
	}
	old, err := service.Heartbeat(t.Context(), &wire.HeartbeatRequest{Session: s.session, BootID: "boot"})
	if err != nil || old.Status != wire.Fenced {
		t.Errorf("heartbeat of a session from before the loss: %+v, %v; want fenced", old, err)
	}
	h.Resync()
	if got := s.returnUnits(service, h.NextReturn()); got.Status != wire.Done {
		t.Errorf("return that reports the totals: %+v", got)
	}
	h.ReturnDelivered(nil)
	if got := s.queryInt("select granted - returned - charged from leases where pool_id = $1 and session_id = $2", s.slots, s.session); got != 1 {
		t.Errorf("the running request holds %d slots after the loss; want 1", got)
	}

	// Nothing is granted until no session from before the loss can admit requests.
	fresh := holder.NewHolder(again.Session, "boot", ident.Account.Format(s.account))
	next := fresh.Reserve([]wire.Need{{Pool: s.balance, Kind: wire.Balance, Amount: 10}})
	op := fresh.NextRequest()
	if got := s.requestLease(service, op); got.Status != wire.Unavailable {
		t.Errorf("lease request during the recovery wait: %+v; want unavailable", got)
	}
	s.exec("update cluster_state set recovered_epoch = cluster_epoch")
	if renewed, err := service.Heartbeat(t.Context(), &wire.HeartbeatRequest{Session: again.Session, BootID: "boot", AppliedRevision: again.Revision}); err != nil || renewed.ClusterEpoch != 2 {
		t.Errorf("heartbeat after the recovery wait: %+v, %v", renewed, err)
	}
	reply = s.requestLease(service, op)
	if fresh.HandleResponse(&reply); !next.Granted() {
		t.Errorf("lease request after the recovery wait: %+v", reply)
	}

	// The usage stream is settled again, and each event is charged once.
	third.ConsumeUsage(settle.New(moneystore.NewSettlement(s.db), nil), prometheus.NewRegistry(), nil)
	s.publish(s.usage(3))
	s.awaitWatermark(marks, 3)
	s.wantSettled(30)
	if got := s.queryInt("select count(*) from usage_records"); got != 3 {
		t.Errorf("%d usage records; want 3", got)
	}
	if got := s.queryInt(`select count(*) from pools p where p.total <> p.free + p.settled +
		(select coalesce(sum(l.granted - l.returned - l.charged), 0) from leases l where l.pool_id = p.id)`); got != 0 {
		t.Errorf("I1 is violated for %d pools", got)
	}

	// The diagnosis sees the consumer of this epoch, and that of the earlier one is gone.
	if got := diagnose(t, third).Streams[0]; got.Consumer != "settler-2" || got.ConsumerMissing {
		t.Errorf("the diagnosis looks at %+v; want the consumer of epoch 2", got)
	}
	js := natstest.JetStream(t, s.server.Connect())
	if err := js.DeleteConsumer(t.Context(), subject.UsageStream, subject.UsageConsumer); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("the consumer of epoch 1: %v; want none", err)
	}
}

// connect connects the bus of a replica.
func (s *restorableEnv) connect() *bus.Bus {
	s.t.Helper()
	b, err := bus.Connect(bus.Config{URL: s.server.URL(), Name: "replica"}, leasestore.NewRecovery(s.db), slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(b.Close)
	s.t.Cleanup(b.Stop)
	if err := b.Declare(await.Context(s.t)); err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *restorableEnv) check(m *recovery.Monitor) {
	s.t.Helper()
	if err := m.Check(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// revoke revokes the key as the key store does.
func (s *restorableEnv) revoke() wire.KeyChange {
	s.t.Helper()
	rev := s.queryInt("update cluster_state set revision = revision + 1 returning revision")
	s.exec("update api_keys set revoked_at = now(), revision = $1 where id = $2", rev, s.key)
	s.exec("insert into key_changes (revision, previous_revision, kind, key_id, account_id) values ($1, 0, 'key_revoked', $2, $3)", rev, s.key, s.account)
	s.exec("update proxy_sessions set applied_revision = $1", rev) // the proxy has applied it
	return wire.KeyChange{V: wire.Version, Revision: rev, Kind: wire.KeyRevoked, KeyHash: s.hash, Account: ident.Account.Format(s.account)}
}

func (s *restorableEnv) requestLease(service *leasing.Service, q *wire.LeaseRequest) wire.LeaseResponse {
	replies := make(chan wire.LeaseResponse, 1)
	service.Request(q, func(r wire.LeaseResponse) { replies <- r })
	return <-replies
}

func (s *restorableEnv) returnUnits(service *leasing.Service, r *wire.Return) wire.ReturnResponse {
	replies := make(chan wire.ReturnResponse, 1)
	service.Return(r, func(r wire.ReturnResponse) { replies <- r })
	return <-replies
}
