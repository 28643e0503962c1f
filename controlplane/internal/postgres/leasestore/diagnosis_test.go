package leasestore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/shared/ident"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	store := leasestore.NewDiagnosis(db)
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("insert into outbox (subject, payload, created_at) values ('x', '', now() - interval '1 hour')")
	exec("insert into quarantine (reason, payload) values ('odd', '')")
	exec("insert into quarantine (reason, payload, resolved_at, resolution) values ('odd', 'a', now(), 'dismissed'), ('odd', 'b', now(), 'released')")
	exec(`insert into provider_bills (id, sha256, name, provider, format, credential, time_zone, unit, currency, first_day, last_day, ends_at, lines,
		with_request, billed, other, step, imported_at, imported_by, accepted_at, open_amount, compared_billed)
		select gen_random_uuid(), int4send(i), '', 'sim', 'csv', '', 'UTC', 'money', 'USD', '2026-01-01', '2026-01-31', now(), 1, 0, 0, 0, 0,
		now() - interval '47 hours' * i, '', case when i = 3 then now() end, 1001, 1000000 from generate_series(1, 3) i`)
	exec("insert into providers (id, name, spec, revision) values ('sim', 'Sim', '{}', 1)")
	exec("insert into provider_credentials (id, provider_id, name, sealed, cipher_key_id) values ('crd_1', 'sim', 'main', '', 'm7')")
	exec("insert into webhook_endpoints (id, url) values ('00000000-0000-0000-0000-000000000001', 'https://cabinet.example')")
	exec("insert into webhook_secrets (id, endpoint_id, sealed, cipher_key_id) select gen_random_uuid(), id, '', 'm8' from webhook_endpoints")
	exec("insert into data_keys (id, sealed, master_key_id) values ('dk_1', '', 'm9')")
	exec("insert into provider_credentials (id, provider_id, name, sealed, cipher_key_id) values ('crd_2', 'sim', 'spare', '', 'dk_1'), ('crd_3', 'sim', 'lost', '', 'dk_2')")
	exec("insert into provider_credentials (id, provider_id, name, sealed, cipher_key_id, enabled) values ('crd_4', 'sim', 'off', '', 'dk_1', false)")
	exec(`insert into providers (id, name, spec, revision) values ('off', 'Off', '{"enabled": false}', 1), ('refusing', 'Refusing', '{"enabled": true, "base_url": "https://refusing.example"}', 1)`)
	exec(`insert into provider_credentials (id, provider_id, name, sealed, cipher_key_id, enabled, refused_at) values
		('crd_5', 'off', 'main', '', 'dk_1', true, null), ('crd_6', 'refusing', 'main', '', 'dk_1', true, now()), ('crd_7', 'refusing', 'spare', '', 'dk_1', false, null)`)
	exec(`insert into models (id, type, enabled, public, spec, revision, deleted_at) select id, 'text', id <> 'disabled', true, '{}', 1, case when id = 'deleted' then now() end
		from unnest(array['served', 'no routes', 'disabled', 'deleted', 'route off', 'provider off', 'refused', 'two routes']) as id`)
	exec(`insert into routes (id, model_id, provider_id, spec) values ('1', 'served', 'sim', '{"enabled": true}'), ('2', 'route off', 'sim', '{"enabled": false}'),
		('3', 'provider off', 'off', '{}'), ('4', 'refused', 'refusing', '{}'), ('5', 'two routes', 'refusing', '{}'), ('6', 'two routes', 'sim', '{}')`)
	exec(`insert into models (id, type, enabled, public, spec, revision) select id, 'text', false, true, '{}', 1 from unnest(array['no price', 'free', 'priced now', 'before']) as id`)
	exec(`insert into model_prices (model_id, sheet, effective_from) values ('no price', '{"server_tool": 5}', now()), ('no price', '{}', now()), ('before', '{}', now()),
		('free', '{"free_server_tool": true}', now()), ('priced now', '{}', now()), ('priced now', '{"server_tool": 5}', now())`)
	exec(`insert into usage_daily_models select (now() at time zone 'utc')::date - case when model = 'before' then 2 else 0 end, model, '', shard, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0
		from unnest(array['no price', 'free', 'priced now', 'before']) as model, generate_series(1, 2) as shard`)
	exec(`update provider_credentials set certificate_expires_at = '2030-01-01Z' where id in ('crd_1', 'crd_4', 'crd_5')`)
	// One that cannot be renewed is usable while it has a valid token.
	exec(`update provider_credentials set refused_at = now(), refused_reason = 'source_failing' where id in ('crd_1', 'crd_2', 'crd_3')`)
	facts, err := store.Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]diagnosis.UnpricedTools{{Model: "no price", Calls: 4}}, facts.UnpricedTools); diff != "" {
		t.Errorf("hosted tools without a price, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"no routes", "provider off", "refused", "route off"}, facts.UnusableModels); diff != "" {
		t.Errorf("unusable models, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]diagnosis.Provider{{ID: "refusing", BaseURL: "https://refusing.example"}, {ID: "sim"}}, facts.Providers); diff != "" {
		t.Errorf("enabled providers, -want +got:\n%s", diff)
	}
	expires := []diagnosis.Certificate{{Provider: "sim", Credential: "main", Expires: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}}
	if diff := cmp.Diff(expires, facts.Certificates); diff != "" {
		t.Errorf("certificates, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"refusing"}, facts.RefusingProviders); diff != "" {
		t.Errorf("refusing providers, -want +got:\n%s", diff)
	}
	if facts.Migration != facts.Newest || facts.Newest == 0 || facts.InRecovery || facts.Version < 130000 || facts.Connections < 1 || facts.MaxConnections < facts.Connections {
		t.Errorf("server: %+v", facts)
	}
	if names, known := facts.Settings["synchronous_standby_names"]; len(facts.Settings) != 4 || facts.Settings["synchronous_commit"] == "" || names != "" || !known {
		t.Errorf("settings: %v", facts.Settings)
	}
	if facts.OutboxAge < time.Hour || facts.Quarantined != 1 || facts.OverdueBills != 1 {
		t.Errorf("contents: %+v", facts)
	}
	if diff := cmp.Diff(map[string]int64{"m7": 1, "m8": 1, "m9": 5, "dk_2": 1}, facts.SecretsByMasterKey); diff != "" {
		t.Errorf("secrets by master key, -want +got:\n%s", diff)
	}
	if facts.Uncertainty < 0 || facts.Skew.Abs() > facts.Uncertainty+time.Second { // it is this machine's clock
		t.Errorf("clock: %v, give or take %v", facts.Skew, facts.Uncertainty)
	}
}

// Limits and keys that let no request through, or that apply to none, are found; others are not.
func TestDiagnoseUselessLimits(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := db.Pool().Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`insert into models (id, type, spec, revision, enabled, public) values ('chat-small', 'text', '{}', 1, true, 'yes'),
		('chat-off', 'text', '{}', 1, false, 'yes'), ('own', 'text', '{}', 1, true, 'no'), ('granted', 'text', '{}', 1, true, 'no')`)
	active, suspended := ident.New(), ident.New()
	exec("insert into accounts (id, name, max_concurrent_requests, revision, status) values ($1, 'a', 1, 1, 'active'), ($2, 's', 1, 1, 'suspended')", active, suspended)
	exec("insert into model_grants (account_id, model_id) values ($1, 'granted')", active)
	want, number := map[diagnosis.UselessLimit]bool{}, 0
	key := func(account ident.UUID, problem, column, value string) {
		id := ident.New()
		number++
		exec("insert into api_keys (id, account_id, name, lookup_hash, revision, "+column+") values ($1, $2, '', sha256($3::text::bytea), 1, "+value+")", id, account, strconv.Itoa(number))
		if problem != "" {
			want[diagnosis.UselessLimit{ID: ident.Key.Format(id), Problem: problem, OfKey: true}] = true
		}
	}
	key(active, "", "spend_limit", "5")
	key(active, diagnosis.NoAmount, "spend_limit", "0")
	key(suspended, "", "spend_limit", "0")
	key(active, "", "spend_limit, paused", "0, true")
	key(active, "", "spend_limit, revoked_at", "0, now()")
	key(active, "", "spend_limit, expires_at", "0, now()")
	key(active, "", "models", `'["chat-*"]'`)
	key(active, "", "models", `'["nothing", "granted"]'`)
	key(active, diagnosis.NoModel, "models", `'["chat"]'`)
	key(active, diagnosis.NoModel, "models", `'["chat-off", "own"]'`)
	limit := func(account ident.UUID, problem, amount, column, value string) {
		id := ident.New()
		number++
		exec("insert into limits (number, id, account_id, period, revision, amount, "+column+") values ($1, $2, $3, 'day', 1, "+amount+", "+value+")", number, id, account)
		if problem != "" {
			want[diagnosis.UselessLimit{ID: ident.Limit.Format(id), Problem: problem}] = true
		}
	}
	limit(active, "", "7", "name", "''")
	limit(active, diagnosis.NoAmount, "0", "name", "''")
	limit(suspended, "", "0", "name", "''")
	limit(active, "", "0", "removed_at", "now()")
	limit(active, "", "0", "raised_to, raised_until", "5, now() + interval '1 hour'")
	limit(active, diagnosis.NoAmount, "0", "raised_to, raised_until", "5, now() - interval '1 hour'")
	limit(active, diagnosis.LowRaise, "7", "raised_to, raised_until", "5, now() + interval '1 hour'")
	limit(active, "", "7", "raised_to, raised_until", "5, now() - interval '1 hour'")
	limit(active, diagnosis.NoModel, "7", "models", `'["own*"]'`)
	limit(active, "", "7", "models", `'["grant*"]'`)

	facts, err := leasestore.NewDiagnosis(db).Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[diagnosis.UselessLimit]bool{}
	for _, l := range facts.UselessLimits {
		got[l] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("useless limits, -want +got:\n%s", diff)
	}
}

// Amounts that the smallest request with any allowed model exceeds are found: a model of images for 40, one of text for 2 a token of input
// and output, and one of video for 9 a second. The account of multiplied pays a tenth.
func TestDiagnoseAmountsThatCoverNoRequest(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := db.Pool().Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`insert into models (id, type, spec, revision, enabled, public) values ('image', 'image', '{}', 1, true, 'yes'),
		('text', 'text', '{}', 1, true, 'no'), ('video', 'video', '{}', 1, true, 'yes')`)
	exec(`insert into model_prices (model_id, sheet, effective_from) values ('image', '{"images": [{"price": 1}]}', now()),
		('image', '{"images": [{"size": "large", "price": 80}, {"price": 40}]}', now()), ('video', '{"seconds": [{"price": 9}]}', now()),
		('text', '{"rates": {"input": 500000, "output": 1500000}}', now())`)
	plain, granted, multiplied := ident.New(), ident.New(), ident.New()
	exec(`insert into accounts (id, name, max_concurrent_requests, revision, status, price_multiplier) values ($1, 'p', 1, 1, 'active', 1000000),
		($2, 'g', 1, 1, 'active', 1000000), ($3, 'm', 1, 1, 'active', 100000)`, plain, granted, multiplied)
	exec("insert into model_grants (account_id, model_id) values ($1, 'text')", granted)
	want, number := map[diagnosis.UselessLimit]bool{}, 0
	key := func(account ident.UUID, low bool, models string, amount int) {
		id := ident.New()
		number++
		exec("insert into api_keys (id, account_id, name, lookup_hash, revision, models, spend_limit) values ($1, $2, '', sha256($3::text::bytea), 1, $4, $5)",
			id, account, strconv.Itoa(number), models, amount)
		if low {
			want[diagnosis.UselessLimit{ID: ident.Key.Format(id), Problem: diagnosis.LowAmount, OfKey: true}] = true
		}
	}
	key(plain, true, "[]", 8)
	key(plain, false, "[]", 9)
	key(plain, true, `["im*"]`, 39)
	key(plain, false, `["im*"]`, 40)
	key(granted, false, "[]", 2)
	key(granted, true, "[]", 1)
	key(granted, true, `["video"]`, 2)
	key(multiplied, false, `["image"]`, 4)
	key(multiplied, true, `["image"]`, 3)
	limit := func(low bool, amount, raisedTo int) {
		id := ident.New()
		number++
		exec(`insert into limits (number, id, account_id, period, revision, amount, name, raised_to, raised_until)
			values ($1, $2, $3, 'day', 1, $4, '', nullif($5, 0), case when $5 > 0 then now() + interval '1 hour' end)`, number, id, plain, amount, raisedTo)
		if low {
			want[diagnosis.UselessLimit{ID: ident.Limit.Format(id), Problem: diagnosis.LowAmount}] = true
		}
	}
	limit(true, 8, 0)
	limit(false, 9, 0)
	limit(false, 8, 9)
	balance := func(account ident.UUID, low bool, total, settled int) {
		exec("insert into pools (kind, account_id, total, free, settled) values (1, $1, $2, $3, $4)", account, total, total-settled, settled)
		if low {
			want[diagnosis.UselessLimit{ID: ident.Account.Format(account), Problem: diagnosis.LowAmount, OfAccount: true}] = true
		}
	}
	balance(plain, true, 8, 0)
	balance(granted, false, 10, 9) // it was used
	balance(multiplied, false, 1, 0)

	facts, err := leasestore.NewDiagnosis(db).Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[diagnosis.UselessLimit]bool{}
	for _, l := range facts.UselessLimits {
		got[l] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("amounts that cover no request, -want +got:\n%s", diff)
	}
}

// An empty database is diagnosed as one that was not migrated.
func TestDiagnoseEmptyDatabase(t *testing.T) {
	t.Parallel()
	db := postgres.Wrap(pgtest.New(t))
	store := leasestore.NewDiagnosis(db)
	if _, err := db.Pool().Exec(t.Context(), "drop table goose_db_version; drop table outbox cascade"); err != nil {
		t.Fatal(err)
	}
	facts, err := store.Diagnose(t.Context())
	if err != nil || facts.Migration != 0 || facts.Newest == 0 {
		t.Errorf("got %+v, %v", facts, err)
	}
}
