package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/storetest"
)

// fail returns a statement that fails with an SQLSTATE.
func fail(state string) string {
	return fmt.Sprintf("do $$ begin raise exception 'on purpose' using errcode = '%s'; end $$", state)
}

func TestInTxRetries(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	for _, test := range []struct {
		name     string
		state    string
		failures int
		runs     int
		fails    bool
	}{
		{"serialization failure", "40001", 2, 3, false},
		{"deadlock", "40P01", 2, 3, false},
		{"for ever", "40001", 100, 6, true},
		{"another error", "23505", 100, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			err := db.InTx(t.Context(), func(tx pgx.Tx) error {
				runs++
				if runs <= test.failures {
					_, err := tx.Exec(t.Context(), fail(test.state))
					return postgres.Translate("try", err)
				}
				return nil
			})
			if runs != test.runs || (err != nil) != test.fails {
				t.Errorf("ran %d times and returned %v; want %d times, failing %v", runs, err, test.runs, test.fails)
			}
		})
	}
}

func TestInTxRollsBack(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	stop := errors.New("stop")
	err := db.InTx(t.Context(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "insert into settings (name, value) values ('x', '1')"); err != nil {
			return err
		}
		return stop
	})
	if !errors.Is(err, stop) {
		t.Fatalf("got %v; want the closure's error", err)
	}
	var rows int
	storetest.Check(t, db.Pool().QueryRow(t.Context(), "select count(*) from settings").Scan(&rows))
	if rows != 0 {
		t.Errorf("got %d rows; want none", rows)
	}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	run := func(sql string) error {
		_, err := db.Pool().Exec(t.Context(), sql)
		return err
	}
	for _, test := range []struct {
		name string
		err  error
		want error
	}{
		{"nothing", nil, nil},
		{"no rows", pgx.ErrNoRows, postgres.ErrNotFound},
		{"unique", run("insert into cluster_state default values"), postgres.ErrDuplicate},
		{"foreign key", run("insert into routes (id, model_id, provider_id, spec) values ('r', 'm', 'p', '{}')"), postgres.ErrReference},
		{"another error", context.Canceled, context.Canceled},
	} {
		got := postgres.Translate("try", test.err)
		if !errors.Is(got, test.want) {
			t.Errorf("%s: got %v; want %v", test.name, got, test.want)
		}
		if got != nil && !strings.Contains(got.Error(), "try") {
			t.Errorf("%s: %q does not name the operation", test.name, got)
		}
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	cfg := postgres.Config{URL: pgtest.Empty(t)}
	db, err := postgres.Open(t.Context(), cfg)
	storetest.Check(t, err)
	t.Cleanup(db.Close)
	if err := db.Migrated(t.Context()); !errors.Is(err, postgres.ErrNotMigrated) {
		t.Fatalf("an empty database: got %v; want %v", err, postgres.ErrNotMigrated)
	}
	// Replicas can migrate at the same time.
	var all sync.WaitGroup
	applied, errs := make([]int, 3), make([]error, 3)
	for i := range applied {
		all.Go(func() {
			var done []postgres.Migration
			done, errs[i] = postgres.Migrate(context.WithoutCancel(t.Context()), cfg)
			applied[i] = len(done)
		})
	}
	all.Wait()
	storetest.Check(t, errors.Join(errs...))
	total := 0
	for _, n := range applied {
		if n != 0 {
			total++
		}
	}
	if total != 1 {
		t.Errorf("applied %v; want all by one", applied)
	}
	storetest.Check(t, db.Migrated(t.Context()))
}

func TestOpenHidesThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:secret@:bad:/x", "postgres://u:secret@127.0.0.1:1/x"} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v; want an error without the password", err)
		}
	}
}

// The server of the tests has no TLS, like one in the place of the real server.
func TestServerIsVerifiedUnlessTheModeIsChosen(t *testing.T) {
	url := pgtest.URL(t)
	base, _, _ := strings.Cut(url, "?")
	c, err := pgx.ParseConfig(url)
	storetest.Check(t, err)
	dsn := fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=%s", c.Host, c.Port, c.User, c.Password, c.Database)
	for _, tt := range []struct {
		url, env string
		opens    bool
	}{
		{base, "", false},
		{base + "?sslmode=", "", false},
		{base + "?application_name=x", "", false},
		{dsn, "", false},
		{base, "require", false},
		{base, "disable", true},
		{dsn, "disable", true},
		{base + "?sslmode=disable", "", true},
		{base + "?application_name=x&sslmode=disable", "verify-full", true},
		{dsn + " sslmode = disable", "", true},
	} {
		t.Setenv("PGSSLMODE", tt.env)
		db, err := postgres.Open(t.Context(), postgres.Config{URL: tt.url})
		if err == nil {
			db.Close()
		}
		if (err == nil) != tt.opens || err != nil && !strings.Contains(err.Error(), "TLS") {
			t.Errorf("%s with PGSSLMODE %q: got %v; want opened %v", strings.TrimPrefix(tt.url, base), tt.env, err, tt.opens)
		}
	}
}

// A control plane that is stopped, or cut off, inside a transaction holds rows that all others need. Postgres ends the
// transaction long before the sessions of proxies, which last 30 s by default, would end.
func TestPostgresEndsTransactionsOfAStoppedReplica(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.URL(t)})
	storetest.Check(t, err)
	t.Cleanup(db.Close)
	for setting, most := range map[string]time.Duration{"idle_in_transaction_session_timeout": 5 * time.Second, "tcp_user_timeout": 15 * time.Second} {
		var ms int64
		storetest.Check(t, db.Pool().QueryRow(t.Context(), "select setting::bigint from pg_settings where name = $1 and unit = 'ms'", setting).Scan(&ms))
		if got := time.Duration(ms) * time.Millisecond; got <= 0 || got > most {
			t.Errorf("%s is %s; want at most %s", setting, got, most)
		}
	}
}
