package pgtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
)

func TestDatabasesAreMigratedAndSeparate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first, second := New(t), New(t)
	if _, err := first.Exec(ctx, `insert into settings (name, value) values ('probe', '1')`); err != nil {
		t.Fatal(err)
	}
	if got := count(t, first, `select count(*) from settings where name = 'probe'`); got != 1 {
		t.Errorf("got %d rows in the first database; want 1", got)
	}
	if got := count(t, second, `select count(*) from settings where name = 'probe'`); got != 0 {
		t.Errorf("got %d rows in the second database; want 0", got)
	}
}

func TestDatabaseIsDroppedWithOpenConnections(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("user", func(t *testing.T) {
		conn, err := pgx.Connect(context.Background(), URL(t))
		if err != nil {
			t.Fatal(err)
		}
		name = conn.Config().Database // and the connection stays open
	})
	if got := count(t, New(t), `select count(*) from pg_database where datname = '`+name+`'`); got != 0 {
		t.Errorf("database %s is still there", name)
	}
}

func TestConcurrentCallsCreateOneTemplate(t *testing.T) {
	t.Parallel()
	admin, err := server()
	if err != nil {
		t.Fatal(err)
	}
	name := "mgw_template_probe_" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		if err := exec(context.Background(), admin, "drop database if exists "+name); err != nil {
			t.Error(err)
		}
	})
	const makers = 3
	results := make(chan error)
	for range makers {
		go func() { results <- ensureTemplate(t.Context(), admin, name) }()
	}
	for range makers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestMigrationsGoDownAndUpAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	at := Empty(t)
	pool, err := pgxpool.New(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	untouched := objects(t, pool)

	up := func(p *goose.Provider) error { _, err := p.Up(ctx); return err }
	down := func(p *goose.Provider) error { _, err := p.DownTo(ctx, 0); return err }
	if err := migrate(at, up); err != nil {
		t.Fatal(err)
	}
	migrated := objects(t, pool)
	if len(migrated) <= len(untouched) {
		t.Fatal("the migrations created nothing")
	}
	if err := migrate(at, down); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(untouched, objects(t, pool)); diff != "" {
		t.Errorf("objects that remain after migrating down (+):\n%s", diff)
	}
	if err := migrate(at, up); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(migrated, objects(t, pool)); diff != "" {
		t.Errorf("migrating up again gave another schema:\n%s", diff)
	}
}

// objects lists relations, functions and types of the schema, but for the
// table in which goose keeps its place.
func objects(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		select kind || ' ' || name from (
			select 'relation' as kind, relname::text as name, relnamespace as schema from pg_class
			union all select 'function', proname::text, pronamespace from pg_proc
			union all select 'type', typname::text, typnamespace from pg_type
		) as object
		where schema = 'public'::regnamespace and name not like '%goose_db_version%'
		order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestFingerprintChangesWithEveryMigration(t *testing.T) {
	t.Parallel()
	sum := func(files fstest.MapFS) string {
		t.Helper()
		s, err := fingerprint(files)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	base := sum(fstest.MapFS{"1_a.sql": {Data: []byte("a")}, "2_b.sql": {Data: []byte("b")}})
	for name, changed := range map[string]fstest.MapFS{
		"content": {"1_a.sql": {Data: []byte("a")}, "2_b.sql": {Data: []byte("c")}},
		"name":    {"1_a.sql": {Data: []byte("a")}, "3_b.sql": {Data: []byte("b")}},
		"fewer":   {"1_a.sql": {Data: []byte("a")}},
	} {
		if sum(changed) == base {
			t.Errorf("a changed %s gives the same fingerprint", name)
		}
	}
}

func count(t *testing.T, pool *pgxpool.Pool, query string) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
