package postgres_test

import (
	"testing"
	"time"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/pgtest"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	store := postgres.DiagnosisStore{DB: postgres.Wrap(pgtest.New(t))}
	exec := func(sql string) {
		t.Helper()
		if _, err := store.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("insert into outbox (subject, payload, at) values ('x', '', now() - interval '1 hour')")
	exec("insert into quarantine (reason, payload) values ('odd', '')")
	exec("insert into providers (id, name, spec, rev) values ('sim', 'Sim', '{}', 1)")
	exec("insert into provider_credentials (id, provider_id, name, sealed, cipher_key_id) values ('crd_1', 'sim', 'main', '', 'm7')")
	facts, err := store.Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if facts.Migration != facts.Newest || facts.Newest == 0 || facts.InRecovery || facts.Version < 130000 || facts.Connections < 1 || facts.MaxConnections < facts.Connections {
		t.Errorf("server: %+v", facts)
	}
	if len(facts.Settings) != 3 || facts.Settings["synchronous_commit"] == "" {
		t.Errorf("settings: %v", facts.Settings)
	}
	if facts.OutboxAge < time.Hour || facts.Quarantined != 1 || facts.SealedWith["m7"] != 1 {
		t.Errorf("contents: %+v", facts)
	}
	if facts.Doubt < 0 || facts.Skew.Abs() > facts.Doubt+time.Second { // it is this machine's clock
		t.Errorf("clock: %v, give or take %v", facts.Skew, facts.Doubt)
	}
}

// A database that was never migrated is looked at too: that is what is found.
func TestDiagnoseAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	store := postgres.DiagnosisStore{DB: postgres.Wrap(pgtest.New(t))}
	if _, err := store.Pool().Exec(t.Context(), "drop table goose_db_version; drop table outbox cascade"); err != nil {
		t.Fatal(err)
	}
	facts, err := store.Diagnose(t.Context())
	if err != nil || facts.Migration != 0 || facts.Newest == 0 {
		t.Errorf("got %+v, %v", facts, err)
	}
}
