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
	"modelgateway/controlplane/internal/postgres/pgtest"
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

// The role of the serving control plane can do its work, but neither change the schema nor rewrite
// history.
func TestRuntimeRoleCannotChangeSchemaOrHistory(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
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
	runtime := connect(t, at.String())
	month := time.Now().UTC().Format("200601")
	for _, allowed := range []string{
		"select * from goose_db_version",
		"insert into audit_log (actor, action, object) values ('a', 'b', 'c')",
		"insert into audit_archives (last_id, entries, file, sha256) select max(id), 1, 'f', '' from audit_log",
		"select remove_archived_audit(max(last_id)) from audit_archives",
		"select ensure_usage_partitions(now(), now() + interval '400 days')",
		"select close_usage_month('2020-01-01')",
		"select drop_usage_month('2020-01-01')",
		"update settings set value = value",
		"delete from idempotency_keys",
		"insert into usage_records_" + month + " select * from usage_records where false",
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
		"truncate usage_records_" + later, "update model_prices set sheet = '{}'",
	} {
		if got := code(t, runtime, refused); got != insufficientPrivilege {
			t.Errorf("%s: code %q; want it refused for lack of privilege", refused, got)
		}
	}
	// The owner, and a control plane that serves as the owner, are kept from it by triggers.
	for _, refused := range []string{
		"truncate ledger_entries, ledger_transactions", "truncate usage_records", "truncate usage_records_" + later,
		"truncate audit_log", "truncate model_prices", "delete from ledger_entries", "update audit_log set actor = 'x'",
	} {
		if got := code(t, owner, refused); got != restrictViolation {
			t.Errorf("%s as the owner: code %q; want it refused as append-only", refused, got)
		}
	}
}
