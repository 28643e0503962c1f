// Package pgtest owns the databases of tests: every test that asks gets a
// database of its own, with all migrations applied, that is dropped when the
// test ends.
//
// The server is the one that MGW_TEST_POSTGRES_URL names, where `make test`
// puts one for all packages, or else a temporary cluster that starts with the
// first test of a process and goes with it. The migrated database is made once
// per server and set of migrations, and cloned.
//
// It uses pgx directly and imports nothing of the control plane, so that every
// package of it can use this one in its tests.
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

// New returns a pool of connections to a migrated database of this test's own.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), URL(t))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// URL returns the connection string of a migrated database of this test's own.
// Connections still open when the test ends are cut.
func URL(t testing.TB) string {
	t.Helper()
	template, err := template()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return create(t, template)
}

// Empty returns the connection string of a database of this test's own without
// any migration, for tests of migrating.
func Empty(t testing.TB) string {
	t.Helper()
	return create(t, "template0")
}

// create makes a database from a template for as long as the test runs.
func create(t testing.TB, template string) string {
	t.Helper()
	admin, err := server()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	name := "mgw_test_" + strings.ToLower(rand.Text())
	quoted := pgx.Identifier{name}.Sanitize()
	if err := exec(t.Context(), admin, "create database "+quoted+" template "+pgx.Identifier{template}.Sanitize()); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
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

// exec runs one statement on a connection of its own.
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
