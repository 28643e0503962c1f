package catalogstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/catalogstore"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/postgres/storetest"
	"modelgateway/controlplane/internal/strict"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/seal"
)

const sampleCatalog = `
currency: USD
providers:
- {id: p, base_url: "https://p.example", credentials: [{name: main, secret: one}]}
models:
- {id: a, type: text, price: {input: 1, output: 2}, params: {chat: {b: {policy: force, value: {y: 1, x: [2]}}}}, routes: [{provider: p, upstream_model: u, formats: [chat]}]}
- {id: b, type: text, price: {input: 1, output: 2}, routes: [{provider: p, upstream_model: v, formats: [chat]}]}
`

func catalogService(t *testing.T) (*catalog.Service, *postgres.DB) {
	t.Helper()
	db := postgres.Wrap(pgtest.New(t))
	keys, err := vault.New("m1", map[string][]byte{"m1": seal.NewSecret()}, nil)
	storetest.Check(t, err)
	fleet, err := seal.NewKey(seal.NewSecret())
	storetest.Check(t, err)
	return catalog.NewService(catalog.Config{
		Store: catalogstore.New(db), Vault: keys, Fleet: fleet, Log: slog.New(slog.DiscardHandler),
	}), db
}

func apply(ctx context.Context, s *catalog.Service, text string) ([]catalog.Change, int64, error) {
	var doc catalog.Document
	if err := strict.YAML([]byte(text), &doc); err != nil {
		return nil, 0, err
	}
	outcome, err := s.Apply(ctx, &doc, catalog.Options{})
	return outcome.Changes, outcome.Rev, err
}

// takeOutbox reads and empties the outbox.
func takeOutbox(t *testing.T, db *postgres.DB) []catalog.Entry {
	t.Helper()
	var taken []catalog.Entry
	_, _, err := catalogstore.NewOutbox(db).Drain(t.Context(), func(_ context.Context, entries []catalog.Entry) error {
		taken = entries
		return nil
	})
	storetest.Check(t, err)
	return taken
}

func TestApplyWritesOutbox(t *testing.T) {
	t.Parallel()
	s, db := catalogService(t)
	for _, step := range []struct {
		name     string
		old, new string
		want     []string
	}{
		{"first", "", "", []string{"settings.settings", "provider.p", "model.a", "model.b", "head"}},
		{"nothing", "", "", nil},
		{"a price", "id: b, type: text, price: {input: 1", "id: b, type: text, price: {input: 3", []string{"model.b", "head"}},
		{"a secret", "secret: one", "secret: two", []string{"provider.p", "model.b", "head"}}, // the price goes back, too
		{"a model gone", "- {id: b,", "#", []string{"provider.p", "model.b", "head"}},
	} {
		_, rev, err := apply(t.Context(), s, strings.Replace(sampleCatalog, step.old, step.new, 1))
		storetest.Check(t, err)
		entries := takeOutbox(t, db)
		if diff := cmp.Diff(step.want, subjects(entries)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if len(entries) == 0 {
			continue
		}
		var head catalogkv.Head
		storetest.Check(t, json.Unmarshal(entries[len(entries)-1].Payload, &head))
		if head != (catalogkv.Head{V: 1, Rev: rev}) {
			t.Errorf("%s: head %+v; want revision %d", step.name, head, rev)
		}
	}
	entries, rev, err := s.Snapshot(t.Context())
	storetest.Check(t, err)
	if diff := cmp.Diff([]string{"settings.settings", "provider.p", "model.a"}, subjects(entries)); diff != "" || rev == 0 {
		t.Errorf("snapshot at %d (-want +got):\n%s", rev, diff)
	}
}

// Prices are only added, also when a model is removed and added again.
func TestPriceVersions(t *testing.T) {
	t.Parallel()
	s, db := catalogService(t)
	versions := func() (all []int64) {
		rows, err := db.Pool().Query(t.Context(), "select version from model_prices where model_id = 'a' order by version")
		storetest.Check(t, err)
		all, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		storetest.Check(t, err)
		return all
	}
	_, _, err := apply(t.Context(), s, sampleCatalog)
	storetest.Check(t, err)
	first := versions()
	_, _, err = apply(t.Context(), s, strings.Replace(sampleCatalog, "input: 1", "input: 7", 1))
	storetest.Check(t, err)
	_, _, err = apply(t.Context(), s, "currency: USD")
	storetest.Check(t, err)
	changes, _, err := apply(t.Context(), s, sampleCatalog)
	storetest.Check(t, err)
	if got := versions(); len(first) != 1 || len(got) != 3 || got[0] != first[0] {
		t.Errorf("versions %v, first %v; want three", got, first)
	}
	if len(changes) != 8 {
		t.Errorf("brought back with %d changes; want 8: %+v", len(changes), changes)
	}
	if _, err := db.Pool().Exec(t.Context(), "update model_prices set sheet = '{}'"); err == nil {
		t.Error("a price version was rewritten")
	}
}

// The provider's prices are versions of their own, end with their route, and are not published to proxies.
func TestProviderPriceVersions(t *testing.T) {
	t.Parallel()
	s, db := catalogService(t)
	versions := func() (all []bool) {
		rows, err := db.Pool().Query(t.Context(), "select sheet is not null from provider_prices order by version")
		storetest.Check(t, err)
		all, err = pgx.CollectRows(rows, pgx.RowTo[bool])
		storetest.Check(t, err)
		return all
	}
	with := func(member string) string {
		return strings.Replace(sampleCatalog, "{provider: p, upstream_model: v,", "{provider: p, upstream_model: v, "+member, 1)
	}
	moved := func(toA, toB string) string {
		return strings.NewReplacer("formats: [chat]}]}\n- {id: b", "formats: [chat]}"+toA+"]}\n- {id: b", "v, formats: [chat]}]", "v, formats: [chat]}"+toB+"]").Replace(sampleCatalog)
	}
	const priced, unpriced = ", {id: r, provider: p, upstream_model: w, formats: [chat], provider_price: {input: 3, output: 1}}", ", {id: r, provider: p, upstream_model: w, formats: [chat]}"
	const cheap, dear = "provider_price: {input: 0.5, output: 1},", "provider_price: {input: 3, output: 1},"
	for _, step := range []struct {
		document string
		changes  []catalog.Action
		versions []bool
	}{
		{sampleCatalog, nil, []bool{}},
		{with(cheap), []catalog.Action{catalog.Create}, []bool{true}},
		{with(cheap), nil, []bool{true}},
		{with(dear), []catalog.Action{catalog.Update}, []bool{true, true}},
		{sampleCatalog, []catalog.Action{catalog.Remove}, []bool{true, true, false}},
		{sampleCatalog, nil, []bool{true, true, false}},
		{with(dear), []catalog.Action{catalog.Create}, []bool{true, true, false, true}},
		{"currency: USD", []catalog.Action{catalog.Remove}, []bool{true, true, false, true, false}},
		{sampleCatalog, nil, []bool{true, true, false, true, false}},
		// A route that moves to another model has the price that it has there.
		{moved(priced, ""), []catalog.Action{catalog.Create}, []bool{true, true, false, true, false, true}},
		{moved("", priced), nil, []bool{true, true, false, true, false, true}},
		{moved(unpriced, ""), []catalog.Action{catalog.Remove}, []bool{true, true, false, true, false, true, false}},
		{moved(unpriced, ""), nil, []bool{true, true, false, true, false, true, false}},
	} {
		changes, _, err := apply(t.Context(), s, step.document)
		storetest.Check(t, err)
		var actions []catalog.Action
		for i := range changes {
			if changes[i].Kind == "provider_price" {
				actions = append(actions, changes[i].Action)
			}
		}
		if diff := cmp.Diff([]any{step.changes, step.versions}, []any{actions, versions()}); diff != "" {
			t.Errorf("changes and versions after %s (-want +got):\n%s", step.document, diff)
		}
		for _, e := range takeOutbox(t, db) {
			if strings.Contains(string(e.Payload), "500000000") || strings.Contains(string(e.Payload), "3000000000") {
				t.Errorf("the provider's price was published: %s", e.Payload)
			}
		}
	}
	if _, err := db.Pool().Exec(t.Context(), "update provider_prices set sheet = null"); err == nil {
		t.Error("a provider's price was rewritten")
	}
}

// Documents that are applied at the same time are applied one after the other.
func TestConcurrentApplies(t *testing.T) {
	t.Parallel()
	s, db := catalogService(t)
	docs := []string{sampleCatalog, "currency: USD", strings.ReplaceAll(sampleCatalog, "input: 1", "input: 9")}
	errs := make([]error, 6)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, _, errs[i] = apply(context.WithoutCancel(t.Context()), s, docs[i%len(docs)]) })
	}
	all.Wait()
	storetest.Check(t, errors.Join(errs...))
	// The bucket, which is filled from the outbox, equals the catalog in the end.
	bucket := map[string]string{}
	for _, e := range takeOutbox(t, db) {
		if bucket[e.Subject] = string(e.Payload); e.Payload == nil {
			delete(bucket, e.Subject)
		}
	}
	entries, rev, err := s.Snapshot(t.Context())
	storetest.Check(t, err)
	var head catalogkv.Head
	storetest.Check(t, json.Unmarshal([]byte(bucket["head"]), &head))
	if head.Rev != rev || len(bucket) != len(entries)+1 {
		t.Errorf("the bucket holds %d entries at %d; want %d at %d", len(bucket), head.Rev, len(entries)+1, rev)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Subject, "model.") && bucket[e.Subject] != string(e.Payload) {
			t.Errorf("%s: the bucket holds %s; want %s", e.Subject, bucket[e.Subject], e.Payload)
		}
	}
}

// A refused document takes no revision and writes nothing.
func TestRefusedApplyWritesNothing(t *testing.T) {
	t.Parallel()
	s, db := catalogService(t)
	rev := func() (n int64) {
		storetest.Check(t, db.Pool().QueryRow(t.Context(), "select revision from cluster_state").Scan(&n))
		return n
	}
	before := rev()
	_, _, err := apply(t.Context(), s, sampleCatalog+"grants: [{account_id: acc_00000000000070008000000000000000, models: [a]}]\n")
	if err == nil {
		t.Fatal("a grant to nobody was applied")
	}
	if after := rev(); after != before || len(takeOutbox(t, db)) != 0 {
		t.Errorf("revision %d; want %d, and nothing to publish", after, before)
	}
}
