package main

import (
	"strings"
	"testing"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	for range 2 { // the second time there is nothing to do
		if err := run(t.Context(), []string{"migrate", "--postgres.url", url}); err != nil {
			t.Fatal(err)
		}
	}
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Migrated(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRefusedArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		want string
	}{
		{"serve", "secrets.master_key"},
		{"serve --postgres.url x", "nats.url"},
		{"migrate", "postgres.url"},
		{"migrate now", "unknown command"},
		{"serve --verbose", "unknown flag"},
		{"dance", "unknown command"},
	} {
		err := run(t.Context(), strings.Fields(test.args))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v; want an error about %q", test.args, err, test.want)
		}
	}
	for _, args := range []string{"version", "--version", "help"} {
		if err := run(t.Context(), []string{args}); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}
