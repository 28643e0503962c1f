// Package pgtest creates the databases of tests: a test that calls New gets its own
// database with all migrations applied, which is dropped when the test ends.
//
// The server is given by MGW_TEST_POSTGRES_URL, which `make test` sets for all
// packages. Without it, the first test of a process starts a temporary cluster,
// which ends with the process. A migrated template database is created once per
// server and set of migrations, and cloned for each test.
//
// The package uses pgx directly and imports no package of the control plane, so
// that each of them can use it in its tests.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// New returns a pool of connections to a migrated database for this test alone.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), URL(t))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// URL returns the connection string of a migrated database for this test alone.
// Connections that are still open when the test ends are closed by the server.
func URL(t testing.TB) string {
	t.Helper()
	template, err := template()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return create(t, template)
}

// Empty returns the connection string of a database for this test alone without any
// migration, for tests of migrations.
func Empty(t testing.TB) string {
	t.Helper()
	return create(t, "template0")
}

// create creates a database from a template; it is dropped when the test ends.
func create(t testing.TB, template string) string {
	t.Helper()
	admin, err := server()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}

	name := "mgw_test_" + strings.ToLower(rand.Text())
	quoted := pgx.Identifier{name}.Sanitize()
	clause, err := copied()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	statement := "create database " + quoted + " template " + pgx.Identifier{template}.Sanitize() + clause
	if err := exec(t.Context(), admin, statement); err != nil {
		t.Fatalf("pgtest: %v", err)
	}

	t.Cleanup(func() {
		// The context of the test has ended at this point.
		if err := exec(context.Background(), admin, "drop database "+quoted+" with (force)"); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})

	at, err := withDatabase(admin, name)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}

	return at
}

// Stop makes the database of a pool refuse connections, and ends those that it has, until start is called.
func Stop(t testing.TB, pool *pgxpool.Pool) (start func()) {
	t.Helper()
	admin, err := server()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}

	name := pool.Config().ConnConfig.Database
	allow := func(allowed string) {
		t.Helper()
		if err := exec(
			t.Context(),
			admin,
			"alter database "+pgx.Identifier{name}.Sanitize()+" with allow_connections "+allowed,
		); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	allow("false")
	if err := exec(t.Context(), admin, "select pg_terminate_backend(pid) from pg_stat_activity where datname = '"+name+"'"); err != nil {
		t.Fatalf("pgtest: %v", err)
	}

	pool.Reset()
	return func() { allow("true") }
}

// exec runs one statement on a new connection.
func exec(ctx context.Context, connString, statement string) error {
	conn, err := pgx.Connect(ctx, connString)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// withDatabase returns the connection string with another database.
func withDatabase(connString, name string) (string, error) {
	u, err := url.Parse(connString)
	if err != nil {
		return "", fmt.Errorf("connection string: %w", err)
	}
	u.Path = "/" + name
	return u.String(), nil
}
