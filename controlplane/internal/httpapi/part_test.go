package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/postgres"
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
	r, err := b.api.ApplyCatalogWithBodyWithResponse(b.t.Context(), nil, "application/yaml", strings.NewReader(doc))
	check(b.t, err)
	if r.JSON200 == nil {
		b.t.Fatalf("apply: %s", r.Body)
	}
}

func TestProviderParts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, err := b.api.PutProviderWithResponse(t.Context(), "new", nil, adminclient.CatalogProvider{ID: "new", BaseURL: "https://new.example"})
	check(t, err)
	if made.JSON201 == nil {
		t.Fatalf("make: %s", made.Body)
	}
	b.catalogOf(smallCatalog)
	read, err := b.api.GetProviderWithResponse(t.Context(), "sim")
	check(t, err)
	tag := read.HTTPResponse.Header.Get("ETag")
	if p := read.JSON200; p == nil || len(p.Credentials) != 2 || p.Credentials[0].ID == nil || p.Credentials[0].Secret != nil {
		t.Fatalf("read: %s", read.Body)
	}
	off, err := b.api.UpdateProviderWithResponse(t.Context(), "sim", &adminclient.UpdateProviderParams{IfMatch: &tag},
		adminclient.CatalogProviderPatch{Enabled: new(false)})
	check(t, err)
	if off.JSON200 == nil || *off.JSON200.Enabled || off.JSON200.BaseURL != "https://sim.example" {
		t.Errorf("switched off: %s", off.Body)
	}
	again, err := b.api.UpdateProviderWithResponse(t.Context(), "sim", &adminclient.UpdateProviderParams{IfMatch: &tag},
		adminclient.CatalogProviderPatch{Enabled: new(true)})
	check(t, err)
	problem(t, again.ApplicationProblemJSONDefault, http.StatusPreconditionFailed, "precondition_failed")
	replaced, err := b.api.PutProviderWithResponse(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "sim", BaseURL: "https://other.example"})
	check(t, err)
	if p := replaced.JSON200; p == nil || len(p.Credentials) != 2 {
		t.Errorf("replaced: %s; want its credentials kept", replaced.Body)
	}
	faulty, err := b.api.PutProviderWithResponse(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "sim", BaseURL: "nothing"})
	check(t, err)
	problem(t, faulty.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	if e := faulty.ApplicationProblemJSONDefault.Errors; len(e) != 1 || e[0].Field != "base_url" {
		t.Errorf("faults %v; want one of base_url", e)
	}
	other, err := b.api.PutProviderWithResponse(t.Context(), "sim", nil, adminclient.CatalogProvider{ID: "another", BaseURL: "https://x.example"})
	check(t, err)
	problem(t, other.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	used, err := b.api.DeleteProviderWithResponse(t.Context(), "sim", nil)
	check(t, err)
	problem(t, used.ApplicationProblemJSONDefault, http.StatusConflict, "in_use")
	nobody, err := b.api.DeleteProviderWithResponse(t.Context(), "nobody", nil)
	check(t, err)
	problem(t, nobody.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
	absent, err := b.api.PutProviderWithResponse(t.Context(), "absent", &adminclient.PutProviderParams{IfMatch: new("*")},
		adminclient.CatalogProvider{ID: "absent", BaseURL: "https://x.example"})
	check(t, err)
	problem(t, absent.ApplicationProblemJSONDefault, http.StatusPreconditionFailed, "precondition_failed")
}

func TestCredentialParts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.catalogOf(smallCatalog)
	before, err := b.api.GetCredentialWithResponse(t.Context(), "sim", "main")
	check(t, err)
	same, err := b.api.PutCredentialWithResponse(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{Name: "main", Secret: new("sk-first")})
	check(t, err)
	rotated, err := b.api.PutCredentialWithResponse(t.Context(), "sim", "main", nil, adminclient.CatalogCredential{Name: "main", Secret: new("sk-second")})
	check(t, err)
	if *same.JSON200.ID != *before.JSON200.ID || *rotated.JSON200.ID == *before.JSON200.ID {
		t.Errorf("the same secret: %s, another one: %s; want only that one to be another credential than %s", same.Body, rotated.Body, before.Body)
	}
	off, err := b.api.UpdateCredentialWithResponse(t.Context(), "sim", "main", nil, adminclient.CatalogCredentialPatch{Enabled: new(false)})
	check(t, err)
	if off.JSON200 == nil || *off.JSON200.Enabled {
		t.Errorf("switched off: %s", off.Body)
	}
	var published string
	check(t, b.db.Pool().QueryRow(t.Context(), "select convert_from(payload, 'UTF8') from outbox where subject like '%provider%' order by id desc limit 1").Scan(&published))
	if strings.Contains(published, *off.JSON200.ID) || !strings.Contains(published, "crd_") {
		t.Errorf("published %s; want the spare credential alone", published)
	}
	fresh, err := b.api.PutCredentialWithResponse(t.Context(), "sim", "third", nil, adminclient.CatalogCredential{Name: "third"})
	check(t, err)
	problem(t, fresh.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	gone, err := b.api.DeleteCredentialWithResponse(t.Context(), "sim", "spare", nil)
	check(t, err)
	left, err := b.api.ListCredentialsWithResponse(t.Context(), "sim", nil)
	check(t, err)
	if gone.StatusCode() != http.StatusNoContent || len(left.JSON200.Data) != 1 {
		t.Errorf("%d, then left %s", gone.StatusCode(), left.Body)
	}
}

func TestModelAndRouteParts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.catalogOf(smallCatalog)
	route := adminclient.CatalogRoute{ID: new("r2"), Provider: "sim", UpstreamModel: "other", Formats: []adminclient.CatalogRouteFormats{"messages"}, Weight: new(2)}
	made, err := b.api.PutRouteWithResponse(t.Context(), "a/text", "r2", nil, route)
	check(t, err)
	if made.JSON201 == nil {
		t.Fatalf("make: %s", made.Body)
	}
	patched, err := b.api.UpdateRouteWithResponse(t.Context(), "a/text", "r2", nil, adminclient.CatalogRoutePatch{Priority: new(5), Enabled: new(false)})
	check(t, err)
	if r := patched.JSON200; r == nil || *r.Priority != 5 || *r.Weight != 2 || *r.Enabled {
		t.Errorf("patched: %s", patched.Body)
	}
	wrong, err := b.api.UpdateRouteWithResponse(t.Context(), "a/text", "r2", nil, adminclient.CatalogRoutePatch{Provider: new("nobody"), Weight: new(-1)})
	check(t, err)
	problem(t, wrong.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	if e := wrong.ApplicationProblemJSONDefault.Errors; len(e) != 2 || e[0].Field != "provider" || e[1].Field != "weight" {
		t.Errorf("faults %v; want those of provider and weight", e)
	}
	unknown, err := b.api.UpdateModelWithBodyWithResponse(t.Context(), "a/text", nil, "application/json", strings.NewReader(`{"context": 5}`))
	check(t, err)
	if p := unknown.ApplicationProblemJSONDefault; p == nil || len(p.Errors) != 1 || p.Errors[0].Field != "context" {
		t.Errorf("an unknown member: %s", unknown.Body)
	}
	named, err := b.api.UpdateModelWithBodyWithResponse(t.Context(), "a/text", nil, "application/json", strings.NewReader(`{"display_name": "A", "context_window": 8, "routes": null}`))
	check(t, err)
	cleared, err := b.api.UpdateModelWithBodyWithResponse(t.Context(), "a/text", nil, "application/json", strings.NewReader(`{"display_name": null}`))
	check(t, err)
	if m := named.JSON200; m == nil || *m.DisplayName != "A" || len(m.Routes) != 0 {
		t.Errorf("named: %s", named.Body)
	}
	if m := cleared.JSON200; m == nil || m.DisplayName != nil || *m.ContextWindow != 8 {
		t.Errorf("cleared: %s", cleared.Body)
	}
	gone, err := b.api.DeleteModelWithResponse(t.Context(), "a/text", nil)
	check(t, err)
	after, err := b.api.GetModelWithResponse(t.Context(), "a/text")
	check(t, err)
	if gone.StatusCode() != http.StatusNoContent || after.StatusCode() != http.StatusNotFound {
		t.Errorf("removed: %d, read after: %d", gone.StatusCode(), after.StatusCode())
	}
	prices, err := b.api.ListPricesWithResponse(t.Context(), "a/text", nil)
	check(t, err)
	problem(t, prices.ApplicationProblemJSONDefault, http.StatusNotFound, "not_found")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	put, err := b.api.PutSettingsWithResponse(t.Context(), nil, adminclient.Settings{Currency: "EUR", ImageInputTokens: new(int64(700))})
	check(t, err)
	read, err := b.api.GetSettingsWithResponse(t.Context())
	check(t, err)
	if read.JSON200 == nil || read.JSON200.Currency != "EUR" || put.HTTPResponse.Header.Get("ETag") != read.HTTPResponse.Header.Get("ETag") {
		t.Errorf("put %s, read %s", put.Body, read.Body)
	}
	stale, err := b.api.PutSettingsWithResponse(t.Context(), &adminclient.PutSettingsParams{IfMatch: new(`"of before"`)}, adminclient.Settings{Currency: "EUR"})
	check(t, err)
	problem(t, stale.ApplicationProblemJSONDefault, http.StatusPreconditionFailed, "precondition_failed")
	wrong, err := b.api.PutSettingsWithResponse(t.Context(), nil, adminclient.Settings{Currency: "EUR", ImageInputTokens: new(int64(-1))})
	check(t, err)
	if p := wrong.ApplicationProblemJSONDefault; p == nil || len(p.Errors) != 1 || p.Errors[0].Field != "image_input_tokens" {
		t.Errorf("a negative estimate: %s", wrong.Body)
	}
}

// A scheduled price holds from its time on and not before; versions stay.
func TestScheduledPrice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.catalogOf(smallCatalog)
	from := time.Now().Add(time.Hour)
	price := func(input string, from *time.Time, key string) *adminclient.CreatePriceResponse {
		r, err := b.api.CreatePriceWithResponse(t.Context(), "a/text", &adminclient.CreatePriceParams{IdempotencyKey: &key},
			adminclient.PriceCreate{Price: adminclient.CatalogPrice{Input: &input, Output: new("2")}, EffectiveFrom: from})
		check(t, err)
		return r
	}
	scheduled := price("3", &from, "a")
	if p := scheduled.JSON201; p == nil || len(p.Data) != 2 || p.Data[0].Status != adminclient.Scheduled || p.Data[0].Version != nil || p.Data[1].Status != adminclient.InForce {
		t.Fatalf("scheduled: %s", scheduled.Body)
	}
	price("4", new(from.Add(time.Minute)), "b")
	past := price("5", new(time.Now().Add(-time.Minute)), "c")
	problem(t, past.ApplicationProblemJSONDefault, http.StatusBadRequest, "invalid_input")
	activate := func() string {
		s := catalog.NewService(catalog.Config{Store: postgres.CatalogStore{DB: b.db}, Log: discard})
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
		t.Errorf("its time has come, and published is %s", published)
	}
	listed, err := b.api.ListPricesWithResponse(t.Context(), "a/text", nil)
	check(t, err)
	data := listed.JSON200.Data
	if len(data) != 3 || data[0].Status != adminclient.Scheduled || *data[1].Price.Input != "3.00" || data[1].Status != adminclient.InForce ||
		data[2].Status != adminclient.Past || *data[2].Price.Input != "1.00" {
		t.Fatalf("prices: %s", listed.Body)
	}
	cancelled, err := b.api.CancelPriceWithResponse(t.Context(), "a/text", *data[0].ID, nil)
	check(t, err)
	again, err := b.api.CancelPriceWithResponse(t.Context(), "a/text", *data[0].ID, nil)
	check(t, err)
	if cancelled.StatusCode() != http.StatusNoContent || again.StatusCode() != http.StatusNotFound {
		t.Errorf("cancelled: %d, again: %d", cancelled.StatusCode(), again.StatusCode())
	}
	now := price("6", nil, "d")
	if p := now.JSON201; p == nil || len(p.Data) != 3 || p.Data[0].Status != adminclient.InForce || *p.Data[0].Price.Input != "6.00" {
		t.Errorf("at once: %s", now.Body)
	}
}
