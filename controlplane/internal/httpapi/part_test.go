package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/postgres/catalogstore"
)

const smallCatalog = `
currency: EUR
providers:
- {id: sim, base_url: "https://sim.example", credentials: [{name: main, secret: sk-first}, {name: spare, secret: sk-spare}]}
models:
- id: a/text
  type: text
  price: {input: "1", output: "2"}
  routes: [{id: r1, provider: sim, upstream_model: up, formats: [chat]}]
`

// catalogOf applies a document.
func (b *bundle) catalogOf(doc string) {
	b.t.Helper()
	r, err := answered(b.api.ApplyCatalog(b.t.Context(), nil, adminclient.CatalogDocument{},
		adminclient.WithBody("application/yaml", []byte(doc))))
	check(b.t, err)
	if r.StatusCode != http.StatusOK {
		b.t.Fatalf("apply: %s", r.Body)
	}
}

func TestProviderIsEditedWithoutTheDocument(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, err := answered(b.api.PutProvider(t.Context(), "new", nil, adminclient.CatalogProvider{ID: "new", BaseURL: "https://new.example"}))
	check(t, err)
	if made.StatusCode != http.StatusCreated {
		t.Fatalf("make: %s", made.Body)
	}
	b.catalogOf(smallCatalog)
	read, err := answered(b.api.GetProvider(t.Context(), "sim"))
	check(t, err)
	tag := read.Header.Get("ETag")
	if p := read.Value; p == nil || len(p.Credentials) != 2 || p.Credentials[0].ID == nil || p.Credentials[0].Secret != nil {
		t.Fatalf("read: %s", read.Body)
	}
	off, err := answered(b.api.UpdateProvider(t.Context(), "sim", &adminclient.UpdateProviderParams{IfMatch: &tag},
		adminclient.CatalogProviderPatch{Enabled: new(false)}))
	check(t, err)
	if off.StatusCode != http.StatusOK || *off.Value.Enabled || off.Value.BaseURL != "https://sim.example" {
		t.Errorf("switched off: %s", off.Body)
	}
	again, err := answered(b.api.UpdateProvider(t.Context(), "sim", &adminclient.UpdateProviderParams{IfMatch: &tag},
		adminclient.CatalogProviderPatch{Enabled: new(true)}))
	check(t, err)
	problem(t, again.Problem, http.StatusPreconditionFailed, "precondition_failed")
	replaced, err := answered(b.api.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "sim", BaseURL: "https://sim.example:443/api"}))
	check(t, err)
	if p := replaced.Value; p == nil || len(p.Credentials) != 2 {
		t.Errorf("replaced: %s; want its credentials kept", replaced.Body)
	}
	faulty, err := answered(b.api.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "sim", BaseURL: "nothing"}))
	check(t, err)
	problem(t, faulty.Problem, http.StatusBadRequest, "invalid_input")
	if e := faulty.Problem.Errors; len(e) != 1 || e[0].Field != "base_url" {
		t.Errorf("field errors %v; want one of base_url", e)
	}
	other, err := answered(b.api.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "another", BaseURL: "https://x.example"}))
	check(t, err)
	problem(t, other.Problem, http.StatusBadRequest, "invalid_input")
	used, err := answered(b.api.DeleteProvider(t.Context(), "sim", nil))
	check(t, err)
	problem(t, used.Problem, http.StatusConflict, "in_use")
	nobody, err := answered(b.api.DeleteProvider(t.Context(), "nobody", nil))
	check(t, err)
	problem(t, nobody.Problem, http.StatusNotFound, "not_found")
	absent, err := answered(b.api.PutProvider(t.Context(), "absent", &adminclient.PutProviderParams{IfMatch: new("*")},
		adminclient.CatalogProvider{ID: "absent", BaseURL: "https://x.example"}))
	check(t, err)
	problem(t, absent.Problem, http.StatusPreconditionFailed, "precondition_failed")
}

// Secrets that are stored can never be read. A change of the provider's address must not send them
// to a server of the caller's choice.
func TestProviderAddressChangesOnlyWithItsSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.catalogOf(smallCatalog)
	for _, address := range []string{"https://other.example", "http://sim.example", "https://sim.example:8443", "https://sim.example.other"} {
		put, err := answered(b.api.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "sim", BaseURL: address}))
		check(t, err)
		problem(t, put.Problem, http.StatusBadRequest, "invalid_input")
		if e := put.Problem.Errors; len(e) != 2 || e[0].Field != "credentials[0].secret" || e[1].Field != "credentials[1].secret" {
			t.Errorf("%s by PUT: %s; want both secrets asked for", address, put.Body)
		}
		patched, err := answered(b.api.UpdateProvider(t.Context(), "sim", nil, adminclient.CatalogProviderPatch{BaseURL: &address}))
		check(t, err)
		problem(t, patched.Problem, http.StatusBadRequest, "invalid_input")
	}
	one, err := answered(b.api.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{
		ID: "sim", BaseURL: "https://other.example", Credentials: []adminclient.CatalogCredential{{Name: "main", Secret: new("sk-first")}, {Name: "spare"}},
	}))
	check(t, err)
	if one.Problem == nil || len(one.Problem.Errors) != 1 || one.Problem.Errors[0].Field != "credentials[1].secret" {
		t.Errorf("one of two secrets: %s; want the other one asked for", one.Body)
	}
	all, err := answered(b.api.PutProvider(t.Context(), "sim", nil, adminclient.CatalogProvider{
		ID: "sim", BaseURL: "https://other.example", Credentials: []adminclient.CatalogCredential{{Name: "main", Secret: new("sk-first")}},
	}))
	check(t, err)
	if all.StatusCode != http.StatusOK || all.Value.BaseURL != "https://other.example" || len(all.Value.Credentials) != 1 {
		t.Errorf("with its secret: %s", all.Body)
	}
}

func TestCredentialIsEditedWithoutTheDocument(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.catalogOf(smallCatalog)
	before, err := answered(b.api.GetCredential(t.Context(), "sim", "main"))
	check(t, err)
	same, err := answered(b.api.PutCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{Name: "main", Secret: new("sk-first")}))
	check(t, err)
	rotated, err := answered(b.api.PutCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{Name: "main", Secret: new("sk-second")}))
	check(t, err)
	if *same.Value.ID != *before.Value.ID || *rotated.Value.ID == *before.Value.ID {
		t.Errorf("the same secret: %s, another one: %s; want only that one to be another credential than %s", same.Body, rotated.Body, before.Body)
	}
	off, err := answered(b.api.UpdateCredential(t.Context(), "sim", "main", nil, adminclient.CatalogCredentialPatch{Enabled: new(false)}))
	check(t, err)
	if off.StatusCode != http.StatusOK || *off.Value.Enabled {
		t.Errorf("switched off: %s", off.Body)
	}
	var published string
	check(t, b.db.Pool().QueryRow(t.Context(), "select convert_from(payload, 'UTF8') from outbox where subject like '%provider%' order by id desc limit 1").Scan(&published))
	if strings.Contains(published, *off.Value.ID) || !strings.Contains(published, "crd_") {
		t.Errorf("published %s; want only the spare credential", published)
	}
	fresh, err := answered(b.api.PutCredential(t.Context(), "sim", "third", nil, adminclient.CatalogCredential{Name: "third"}))
	check(t, err)
	problem(t, fresh.Problem, http.StatusBadRequest, "invalid_input")
	gone, err := answered(b.api.DeleteCredential(t.Context(), "sim", "spare", nil))
	check(t, err)
	left, err := answered(b.api.ListCredentials(t.Context(), "sim", nil))
	check(t, err)
	if gone.StatusCode != http.StatusNoContent || len(left.Value.Data) != 1 {
		t.Errorf("%d, then left %s", gone.StatusCode, left.Body)
	}
}

func TestModelAndRouteAreEditedWithoutTheDocument(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.catalogOf(smallCatalog)
	route := adminclient.CatalogRoute{ID: new("r2"), Provider: "sim", UpstreamModel: "other", Formats: []adminclient.CatalogRouteFormats{"messages"}, Weight: new(2)}
	made, err := answered(b.api.PutRoute(t.Context(), "a/text", "r2", nil, route))
	check(t, err)
	if made.StatusCode != http.StatusCreated {
		t.Fatalf("make: %s", made.Body)
	}
	patched, err := answered(b.api.UpdateRoute(t.Context(), "a/text", "r2", nil, adminclient.CatalogRoutePatch{Priority: new(5), Enabled: new(false)}))
	check(t, err)
	if r := patched.Value; r == nil || *r.Priority != 5 || *r.Weight != 2 || *r.Enabled {
		t.Errorf("patched: %s", patched.Body)
	}
	wrong, err := answered(b.api.UpdateRoute(t.Context(), "a/text", "r2", nil, adminclient.CatalogRoutePatch{Provider: new("nobody"), Weight: new(-1)}))
	check(t, err)
	problem(t, wrong.Problem, http.StatusBadRequest, "invalid_input")
	if e := wrong.Problem.Errors; len(e) != 2 || e[0].Field != "provider" || e[1].Field != "weight" {
		t.Errorf("field errors %v; want those of provider and weight", e)
	}
	unknown, err := answered(b.api.UpdateModel(t.Context(), "a/text", nil, adminclient.CatalogModelPatch{},
		adminclient.WithBody("application/json", []byte(`{"context": 5}`))))
	check(t, err)
	if p := unknown.Problem; p == nil || len(p.Errors) != 1 || p.Errors[0].Field != "context" {
		t.Errorf("an unknown member: %s", unknown.Body)
	}
	named, err := answered(b.api.UpdateModel(t.Context(), "a/text", nil, adminclient.CatalogModelPatch{},
		adminclient.WithBody("application/json", []byte(`{"display_name": "A", "context_window": 8, "routes": null}`))))
	check(t, err)
	cleared, err := answered(b.api.UpdateModel(t.Context(), "a/text", nil, adminclient.CatalogModelPatch{},
		adminclient.WithBody("application/json", []byte(`{"display_name": null}`))))
	check(t, err)
	if m := named.Value; m == nil || *m.DisplayName != "A" || len(m.Routes) != 0 {
		t.Errorf("named: %s", named.Body)
	}
	if m := cleared.Value; m == nil || m.DisplayName != nil || *m.ContextWindow != 8 {
		t.Errorf("cleared: %s", cleared.Body)
	}
	gone, err := answered(b.api.DeleteModel(t.Context(), "a/text", nil))
	check(t, err)
	after, err := answered(b.api.GetModel(t.Context(), "a/text"))
	check(t, err)
	if gone.StatusCode != http.StatusNoContent || after.StatusCode != http.StatusNotFound {
		t.Errorf("removed: %d, read after: %d", gone.StatusCode, after.StatusCode)
	}
	prices, err := answered(b.api.ListPrices(t.Context(), "a/text", nil))
	check(t, err)
	problem(t, prices.Problem, http.StatusNotFound, "not_found")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	put, err := answered(b.api.PutSettings(t.Context(), nil, adminclient.Settings{Currency: "EUR", ImageInputTokens: new(int64(700))}))
	check(t, err)
	read, err := answered(b.api.GetSettings(t.Context()))
	check(t, err)
	if read.StatusCode != http.StatusOK || read.Value.Currency != "EUR" || put.Header.Get("ETag") != read.Header.Get("ETag") {
		t.Errorf("put %s, read %s", put.Body, read.Body)
	}
	stale, err := answered(b.api.PutSettings(t.Context(), &adminclient.PutSettingsParams{IfMatch: new(`"of before"`)}, adminclient.Settings{Currency: "EUR"}))
	check(t, err)
	problem(t, stale.Problem, http.StatusPreconditionFailed, "precondition_failed")
	wrong, err := answered(b.api.PutSettings(t.Context(), nil, adminclient.Settings{Currency: "EUR", ImageInputTokens: new(int64(-1))}))
	check(t, err)
	if p := wrong.Problem; p == nil || len(p.Errors) != 1 || p.Errors[0].Field != "image_input_tokens" {
		t.Errorf("a negative estimate: %s", wrong.Body)
	}
}

// A price is not set over one that somebody else has set in the meantime.
func TestPriceIsSetOnlyIfTheModelMatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.catalogOf(smallCatalog)
	read, err := answered(b.api.GetModel(t.Context(), "a/text"))
	check(t, err)
	set := func(input string, from *time.Time) (int, *adminclient.Problem) {
		params := &adminclient.CreatePriceParams{IfMatch: new(read.Header.Get("ETag"))}
		r, err := answered(b.api.CreatePrice(t.Context(), "a/text", params, adminclient.PriceCreate{
			Price: adminclient.CatalogPrice{Input: &input, Output: new("2")}, EffectiveFrom: from,
		}))
		check(t, err)
		return r.StatusCode, r.Problem
	}
	if status, p := set("1.5", nil); status != http.StatusCreated {
		t.Fatalf("with the tag of the model: got %d %v", status, p)
	}
	for _, from := range []*time.Time{nil, new(time.Now().Add(time.Hour))} {
		_, p := set("1.7", from)
		problem(t, p, http.StatusPreconditionFailed, "precondition_failed")
	}
}

// A scheduled price takes effect at its time and not before; price versions stay.
func TestScheduledPrice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.catalogOf(smallCatalog)
	from := time.Now().Add(time.Hour)
	price := func(input string, from *time.Time, key string) *answer[adminclient.PriceList] {
		r, err := answered(b.api.CreatePrice(t.Context(), "a/text", &adminclient.CreatePriceParams{IdempotencyKey: &key},
			adminclient.PriceCreate{Price: adminclient.CatalogPrice{Input: &input, Output: new("2")}, EffectiveFrom: from}))
		check(t, err)
		return r
	}
	scheduled := price("3", &from, "a")
	if p := scheduled.Value; p == nil || len(p.Data) != 2 || p.Data[0].Status != adminclient.PriceVersionStatusScheduled || p.Data[0].Version != nil || p.Data[1].Status != adminclient.PriceVersionStatusInForce {
		t.Fatalf("scheduled: %s", scheduled.Body)
	}
	price("4", new(from.Add(time.Minute)), "b")
	past := price("5", new(time.Now().Add(-time.Minute)), "c")
	problem(t, past.Problem, http.StatusBadRequest, "invalid_input")
	activate := func() string {
		s := catalog.NewService(catalog.Config{Store: catalogstore.New(b.db), Log: discard})
		check(t, s.ActivatePrices(t.Context()))
		var published string
		check(t, b.db.Pool().QueryRow(t.Context(), "select convert_from(payload, 'UTF8') from outbox where subject like '%model%' order by id desc limit 1").Scan(&published))
		return published
	}
	if published := activate(); strings.Contains(published, "3000000000") {
		t.Errorf("published before its time: %s", published)
	}
	b.exec("update scheduled_prices set effective_from = now() - interval '1 minute' where effective_from < $1", from.Add(time.Second))
	if published := activate(); !strings.Contains(published, "3000000000") {
		t.Errorf("at its time the published prices are %s", published)
	}
	listed, err := answered(b.api.ListPrices(t.Context(), "a/text", nil))
	check(t, err)
	data := listed.Value.Data
	if len(data) != 3 || data[0].Status != adminclient.PriceVersionStatusScheduled || *data[1].Price.Input != "3.00" || data[1].Status != adminclient.PriceVersionStatusInForce ||
		data[2].Status != adminclient.PriceVersionStatusPast || *data[2].Price.Input != "1.00" {
		t.Fatalf("prices: %s", listed.Body)
	}
	cancelled, err := answered(b.api.CancelPrice(t.Context(), "a/text", *data[0].ID, nil))
	check(t, err)
	again, err := answered(b.api.CancelPrice(t.Context(), "a/text", *data[0].ID, nil))
	check(t, err)
	if cancelled.StatusCode != http.StatusNoContent || again.StatusCode != http.StatusNotFound {
		t.Errorf("cancelled: %d, again: %d", cancelled.StatusCode, again.StatusCode)
	}
	now := price("6", nil, "d")
	if p := now.Value; p == nil || len(p.Data) != 3 || p.Data[0].Status != adminclient.PriceVersionStatusInForce || *p.Data[0].Price.Input != "6.00" {
		t.Errorf("at once: %s", now.Body)
	}
}
