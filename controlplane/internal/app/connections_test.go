package app

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// Statements of the admin API use all its connections and wait. Proxies are served all the same: otherwise their sessions
// would end.
func TestProxiesAreServedWhileTheAdminAPIUsesAllItsConnections(t *testing.T) {
	broker, url := natstest.New(t), pgtest.URL(t)
	ctx := t.Context()
	cfg := testConfig(url, broker.URL())
	cfg.Postgres.AdminMaxConnections = cfg.Postgres.MaxConnections
	r := start(t, cfg)
	defer r.end(t)
	api, err := adminclient.New(r.admin, token)
	if err != nil {
		t.Fatal(err)
	}
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	held, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(ctx, "lock table audit_log in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	requests := 2 * cfg.Postgres.MaxConnections
	listed := make(chan error, requests)
	for range requests {
		go func() {
			_, err := api.ListAudit(ctx, nil)
			listed <- err
		}()
	}
	listener := 1 // one connection waits for notifications
	for waiting := 0; waiting < cfg.Postgres.AdminMaxConnections-listener; {
		if err := held.QueryRow(ctx, "select count(*) from pg_locks where relation = 'audit_log'::regclass and not granted").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	bus := broker.Connect(nats.CustomInboxPrefix(subject.Inbox("proxy")))
	request := func(to string, question, response any) {
		t.Helper()
		data, err := json.Marshal(question)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := bus.RequestWithContext(ctx, to, data)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(answer.Data, response); err != nil {
			t.Fatal(err)
		}
	}
	var session wire.RegisterResponse
	request(subject.From(subject.Register, "proxy"), wire.RegisterRequest{V: wire.Version, Name: "proxy", BootID: "boot"}, &session)
	if session.Status != wire.Done {
		t.Fatalf("registration: %+v; want a session", session)
	}
	var heartbeat wire.HeartbeatResponse
	request(subject.From(subject.Heartbeat, "proxy"), wire.HeartbeatRequest{V: wire.Version, Session: session.Session, BootID: "boot", AppliedRevision: session.Revision}, &heartbeat)
	if heartbeat.Status != wire.Done {
		t.Errorf("heartbeat: %+v; want the session extended", heartbeat)
	}
	var lease wire.LeaseResponse
	request(subject.From(subject.LeaseRequest, "proxy"), wire.LeaseRequest{
		V: wire.Version, Session: session.Session, BootID: "boot", Account: "acc_00000000000000000000000000000001", Number: 1,
		Needs: [][]wire.Need{{{Pool: 1, Kind: wire.Balance, Amount: 1}}},
	}, &lease)
	if lease.Status != wire.Done || len(lease.Decisions) != 1 || lease.Decisions[0].Granted {
		t.Errorf("lease request of an account without a balance: %+v; want it refused", lease)
	}
	if len(listed) > 0 {
		t.Errorf("a list of the locked table is answered: %v", <-listed)
	}
	if err := held.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	for range requests {
		if err := <-listed; err != nil {
			t.Errorf("list the audit log after the wait: %v", err)
		}
	}
}
