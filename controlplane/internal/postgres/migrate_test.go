package postgres

import (
	"context"
	"io/fs"
	"math"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/postgres/pgtest"
)

// A migration of a table that is in use is tried again until it can be applied. The
// migrations before it stay applied, and are reported.
func TestMigrationRetriesLockedTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.Empty(t)
	db, err := Open(ctx, Config{URL: url, lockTimeout: 20 * time.Millisecond})
	must(t, err)
	t.Cleanup(db.Close)
	users, err := Open(ctx, Config{URL: url})
	must(t, err)
	t.Cleanup(users.Close)
	files := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\ncreate table used (a int);\n-- +goose Down\ndrop table used;\n")}}
	up := func(ctx context.Context, files fs.FS) ([]Migration, error) {
		provider, err := newProvider(db.pool, files)
		must(t, err)
		return migrate(ctx, provider, math.MaxInt, time.Millisecond)
	}
	_, err = up(ctx, files)
	must(t, err)

	user, err := users.pool.Begin(ctx)
	must(t, err)
	t.Cleanup(func() { _ = user.Rollback(context.WithoutCancel(ctx)) })
	_, err = user.Exec(ctx, "insert into used values (1)")
	must(t, err)
	files["00002_b.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\ncreate table free (a int);\n-- +goose Down\ndrop table free;\n")}
	files["00003_c.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nalter table used add column b int;\n-- +goose Down\nalter table used drop column b;\n")}
	type outcome struct {
		applied []Migration
		err     error
	}
	done := make(chan outcome, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		applied, err := up(ctx, files)
		done <- outcome{applied, err}
	}()
	// Other transactions use the table meanwhile: they would wait while a migration waits for its lock without a limit.
	for range 20 {
		_, err := users.pool.Exec(ctx, "select from used")
		must(t, err)
	}
	select {
	case o := <-done:
		t.Fatalf("applied %v, %v beside a user of the table", o.applied, o.err)
	default:
	}
	must(t, user.Commit(ctx))
	o := <-done
	must(t, o.err)
	want := []Migration{{2, "00002_b.sql"}, {3, "00003_c.sql"}}
	if diff := cmp.Diff(want, o.applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}

// A migration with an error is not tried again.
func TestFailingMigration(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), Config{URL: pgtest.Empty(t)})
	must(t, err)
	t.Cleanup(db.Close)
	provider, err := newProvider(db.pool, fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nselect nothing;\n-- +goose Down\nselect 1;\n")}})
	must(t, err)
	if applied, err := migrate(t.Context(), provider, 2, time.Hour); err == nil || len(applied) != 0 {
		t.Errorf("got %v, %v; want an error", applied, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
