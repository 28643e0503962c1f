package pgtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver that goose runs on
	"github.com/pressly/goose/v3"

	"modelgateway/migrations"
)

// templateLock is the advisory lock that is held while a template is created, so
// that the tests of several packages on one server create it once.
const templateLock = 0x6d67775f74657374

// template returns the name of the migrated database that tests are cloned from.
var template = sync.OnceValues(func() (string, error) {
	admin, err := server()
	if err != nil {
		return "", err
	}
	sum, err := fingerprint(migrations.Files)
	if err != nil {
		return "", err
	}
	name := "mgw_template_" + sum
	return name, ensureTemplate(context.Background(), admin, name)
})

// ensureTemplate creates the template if it does not exist. It creates it under
// another name and renames it, so that an unfinished template is never used.
func ensureTemplate(ctx context.Context, admin, name string) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }() // this also releases the lock
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", int64(templateLock)); err != nil {
		return fmt.Errorf("lock template: %w", err)
	}

	var exists bool
	err = conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&exists)
	if err != nil || exists {
		return err
	}

	building := name + "_building"
	for _, statement := range []string{
		"drop database if exists " + building + " with (force)",
		"create database " + building + " template template0",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}

	at, err := withDatabase(admin, building)
	if err != nil {
		return err
	}
	if err := migrate(at, func(p *goose.Provider) error { _, err := p.Up(ctx); return err }); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "alter database "+building+" rename to "+name); err != nil {
		return fmt.Errorf("rename template: %w", err)
	}

	return nil
}

// migrate runs f with the migrations and a connection to the database.
func migrate(connString string, f func(*goose.Provider) error) (err error) {
	db, err := sql.Open("pgx", connString)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if err := f(provider); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// fingerprint returns a hash of the names and contents of all migrations.
func fingerprint(files fs.FS) (string, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return "", fmt.Errorf("migrations: %w", err)
	}
	hash := sha256.New()
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", fmt.Errorf("migrations: %w", err)
		}
		fmt.Fprintf(hash, "%s %d\n", name, len(text))
		hash.Write(text)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}
