package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/rollback"
)

// insufficientPrivilege and restrictViolation are error codes of Postgres: the second is that of
// append-only tables.
const (
	insufficientPrivilege = "42501"
	restrictViolation     = "23001"
)

// code executes a statement and returns the error code of Postgres; "" if there is no error.
func code(t *testing.T, conn *pgx.Conn, statement string) string {
	t.Helper()
	_, err := conn.Exec(t.Context(), statement)
	var refused *pgconn.PgError
	if err != nil && !errors.As(err, &refused) {
		t.Fatalf("%s: %v", statement, err)
	}
	if refused != nil {
		return refused.Code
	}
	return ""
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// runtimeURL creates a role with the privileges of the serving control plane, and returns the
// connection string of the database with it.
func runtimeURL(t *testing.T, address string) string {
	t.Helper()
	owner := connect(t, address)
	role := fmt.Sprintf("Runtime %d", rand.Uint64()) // quoted wherever it is used
	if got := code(t, owner, fmt.Sprintf("create role %q login password 'x'", role)); got != "" {
		t.Fatalf("create role: %s", got)
	}
	t.Cleanup(func() {
		_, _ = owner.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("drop owned by %[1]q; drop role %[1]q", role))
	})
	for range 2 { // each migration grants again
		if err := postgres.Grant(t.Context(), postgres.Config{URL: address}, role); err != nil {
			t.Fatal(err)
		}
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword(role, "x")
	return at.String()
}

// The role of the serving control plane observes the server, ends the connections of a replica
// that it fences, declares a loss and ends the recovery wait.
func TestRuntimeRoleRecoversFromLoss(t *testing.T) {
	t.Parallel()
	w := storetest.New(t)
	c := w.Customer(1000, storetest.Unlimited, 10)
	address := runtimeURL(t, w.URL)
	open := func(replica string) *postgres.DB {
		t.Helper()
		db, err := postgres.Open(t.Context(), postgres.Config{URL: address, Name: postgres.ApplicationName(replica), MaxConnections: 1})
		storetest.Check(t, err)
		t.Cleanup(db.Close)
		return db
	}
	db, stopped := open("other"), open("stopped")
	store := leasestore.NewRecovery(db)
	for _, replica := range []string{"other", "stopped"} {
		_, err := store.AddReplica(t.Context(), replica, 1)
		storetest.Check(t, err)
	}
	tx, err := stopped.Pool().Begin(t.Context())
	storetest.Check(t, err)
	w.In(tx, "select from pools where id = $1 for no key update", c.Balance)
	w.In(tx, "insert into commit_markers (replica_id, number) select id, 1 from replicas where id = 'stopped' for key share")
	_, err = store.Checkpoint(t.Context(), recovery.Checkpoint{Marker: rollback.CommitMarker{Replica: "other", N: 1}, Fence: []string{"stopped"}})
	storetest.Check(t, err)
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("the transaction of the fenced replica was committed")
	}
	seen, err := store.Observe(t.Context(), []rollback.CommitMarker{{Replica: "other", N: 2}})
	if err != nil || len(seen.MissingMarkers) != 1 {
		t.Fatalf("observed %+v, %v; want one missing marker", seen, err)
	}
	ahead := seen.Mark
	ahead.Session, ahead.Pool = ahead.Session+100, ahead.Pool+100
	mark, err := store.DeclareLoss(t.Context(), 1, ahead, time.Second, recovery.Backup{RevokedKeys: []apikey.Hash{c.Hash}})
	if err != nil || mark.Epoch != 2 {
		t.Fatalf("declared %+v, %v; want epoch 2", mark, err)
	}
	if !storetest.Scalar[bool](w, "select revoked_at is not null from api_keys where lookup_hash = $1", c.Hash[:]) {
		t.Error("the lost revocation was not restored")
	}
	_, err = store.AddReplica(t.Context(), "other", 2)
	storetest.Check(t, err)
	after, err := store.Checkpoint(t.Context(), recovery.Checkpoint{Marker: rollback.CommitMarker{Replica: "other", N: 2}, Recovered: 2})
	if err != nil || after.Recovering || after.Mark.Pool < ahead.Pool || after.Mark.Session < ahead.Session {
		t.Errorf("observed %+v, %v; want no recovery wait, and ids above those that were lost", after, err)
	}
	storetest.Check(t, store.RecordNewStream(t.Context()))
	// The connections of other roles count too.
	facts, err := leasestore.NewDiagnosis(db).Diagnose(t.Context())
	if err != nil || facts.Connections < 2 {
		t.Errorf("%d connections, %v; want those of the owner counted", facts.Connections, err)
	}
}

// The role of the serving control plane can do its work, but neither change the schema nor rewrite
// history.
func TestRuntimeRoleCannotChangeSchemaOrHistory(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	owner := connect(t, address)
	runtime := connect(t, runtimeURL(t, address))
	month := time.Now().UTC().Format("200601")
	for _, allowed := range []string{
		"select * from goose_db_version",
		"insert into audit_log (actor, action, object) values ('a', 'b', 'c')",
		"insert into audit_archives (last_id, entries, file, sha256) select max(id), 1, 'f', '' from audit_log",
		"select remove_archived_audit(max(last_id)) from audit_archives",
		"select ensure_usage_partitions(now(), now() + interval '400 days')",
		"select keep_traffic_partitions(now() + interval '1 day')", "select keep_traffic_partitions(now())",
		"insert into traffic_minutes values (now(), 'requests', '', '', '', '', 200, '', 'completed', 1, 0)",
		"select close_usage_month('2020-01-01')",
		"select drop_usage_month('2020-01-01')",
		"update settings set value = value",
		"delete from idempotency_keys",
		"insert into usage_records_" + month + " select * from usage_records where false", //nolint:unqueryvet // all columns, whatever they are
	} {
		if got := code(t, runtime, allowed); got != "" {
			t.Errorf("%s: refused with %s", allowed, got)
		}
	}
	later := time.Now().UTC().AddDate(1, 0, 0).Format("200601")
	for _, refused := range []string{
		"create table mine ()", "drop table accounts", "alter table accounts add column mine text",
		"alter table ledger_entries disable trigger all", "set session_replication_role = replica",
		"truncate idempotency_keys", "insert into goose_db_version (version_id, is_applied) values (9, true)",
		"update ledger_entries set amount = 0", "delete from ledger_transactions", "delete from audit_log", "update audit_log set actor = 'x'",
		"delete from usage_records", "delete from usage_records_" + month, "delete from usage_records_" + later,
		"truncate usage_records_" + later, "select setval('audit_log_id_seq', 1)", "update model_prices set sheet = '{}'", "update provider_prices set sheet = '{}'",
	} {
		if got := code(t, runtime, refused); got != insufficientPrivilege {
			t.Errorf("%s: code %q; want it refused for lack of privilege", refused, got)
		}
	}
	// The owner, and a control plane that serves as the owner, are kept from it by triggers.
	for _, refused := range []string{
		"truncate ledger_entries, ledger_transactions, credits", "truncate usage_records", "truncate usage_records_" + later,
		"truncate audit_log", "truncate model_prices", "truncate provider_prices", "delete from ledger_entries", "update audit_log set actor = 'x'",
	} {
		if got := code(t, owner, refused); got != restrictViolation {
			t.Errorf("%s as the owner: code %q; want it refused as append-only", refused, got)
		}
	}
}
