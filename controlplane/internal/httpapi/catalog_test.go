package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
)

const demoCatalog = `
currency: USD
settings: {image_input_tokens: 1000}
providers:
  - id: sim
    name: Simulator
    base_url: http://127.0.0.1:9100
    credentials: [{name: main, secret: sk-of-the-provider}]
    connect_timeout: 5s
models:
  - id: demo-chat
    type: text
    max_output_tokens: 4096
    price: {input: "1.00", cached_input: 0.10, output: "5.00", tiers: [{above_input: 2000000, input: "2.00", output: "7.50"}], secondary: [{kind: image_tool, input: "5.00", output: "40.00", images: [{price: "0.01"}]}]}
    routes: [{provider: sim, upstream_model: sim-chat, formats: [chat]}]
    params: {chat: {web_search_options: {policy: forward}}}
  - id: demo/image
    type: image
    public: false
    price: {images: [{size: 1024x1024, quality: high, price: "0.09"}, {price: "0.04"}]}
    routes: [{provider: sim, upstream_model: sim-image, formats: [images]}]
`

// try applies a catalog in YAML.
func (b *bundle) try(doc string, dryRun bool) *answer[adminclient.CatalogChanges] {
	b.t.Helper()
	r, err := answered(b.api.ApplyCatalog(b.t.Context(), &adminclient.ApplyCatalogParams{DryRun: &dryRun}, adminclient.CatalogDocument{},
		adminclient.WithBody("application/yaml", []byte(doc))))
	check(b.t, err)
	return r
}

func (b *bundle) apply(doc string) *adminclient.CatalogChanges {
	b.t.Helper()
	r := b.try(doc, false)
	if r.StatusCode != http.StatusOK {
		b.t.Fatalf("apply catalog: %s", r.Body)
	}
	return r.Value
}

// summary returns each change as one line.
func summary(c *adminclient.CatalogChanges) []string {
	var lines []string
	for _, each := range c.Changes {
		id := each.ID
		if each.Kind == adminclient.CatalogChangeKindRoute { // made from what it leads to
			id = "…"
		}
		lines = append(lines, string(each.Action)+" "+string(each.Kind)+" "+id)
	}
	return lines
}

func TestCatalogIsAppliedAndExported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := []string{
		"update settings " + "settings", "create provider sim", "create credential sim/main",
		"create model demo-chat", "create price demo-chat", "create route …",
		"create model demo/image", "create price demo/image", "create route …",
	}
	dry := b.try(demoCatalog, true)
	if diff := cmp.Diff(want, summary(dry.Value)); diff != "" || !dry.Value.DryRun || dry.Value.Revision != 0 {
		t.Errorf("dry run at %d (-want +got):\n%s", dry.Value.Revision, diff)
	}
	applied := b.apply(demoCatalog)
	if diff := cmp.Diff(want, summary(applied)); diff != "" || applied.Revision == 0 {
		t.Errorf("applied as %d (-want +got):\n%s", applied.Revision, diff)
	}
	if again := b.apply(demoCatalog); len(again.Changes) != 0 || again.Revision != applied.Revision {
		t.Errorf("applied again: %+v; want nothing at %d", again, applied.Revision)
	}
	if strings.Contains(string(dry.Body), "sk-of-the-provider") {
		t.Error("the answer shows a secret")
	}
}

// An exported catalog can be applied again, as JSON and as YAML.
func TestExportedCatalogCanBeApplied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(demoCatalog)
	yaml, err := answered(b.api.GetCatalog(t.Context(), &adminclient.GetCatalogParams{Accept: new("application/yaml")}))
	check(t, err)
	if got := b.apply(string(yaml.Body)); len(got.Changes) != 0 {
		t.Errorf("YAML applied again: %+v\n%s", got, yaml.Body)
	}
	json, err := answered(b.api.GetCatalog(t.Context(), nil))
	check(t, err)
	again, err := answered(b.api.ApplyCatalog(t.Context(), nil, *json.Value))
	check(t, err)
	if again.StatusCode != http.StatusOK || len(again.Value.Changes) != 0 {
		t.Errorf("JSON applied again: %s", again.Body)
	}
	for _, text := range []string{string(yaml.Body), string(json.Body)} {
		if strings.Contains(text, "sk-of-the-provider") {
			t.Error("the export shows a secret")
		}
	}
}

func TestInvalidCatalogReportsAllFieldErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.try(`
currency: dollars
colour: red
providers: [{id: sim, base_url: "ftp://x"}]
`, false)
	problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	r = b.try(strings.Replace(strings.Replace(demoCatalog, `input: "1.00", `, "", 1), "provider: sim, upstream_model: sim-image", "provider: other", 1), false)
	problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	var fields []string
	for _, e := range r.Problem.Errors {
		fields = append(fields, e.Field)
	}
	want := []string{"models[0].price.input", "models[1].routes[0].provider", "models[1].routes[0].upstream_model"}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	r = b.try(strings.Replace(demoCatalog, "secret: sk-of-the-provider", "", 1), false)
	if errs := r.Problem.Errors; len(errs) != 1 || errs[0].Field != "providers[0].credentials[0].secret" {
		t.Errorf("without a secret: %s", r.Body)
	}
	r = b.try(demoCatalog+"grants: [{account_id: acc_00000000000070008000000000000000, models: [demo-chat]}]\n", false)
	problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	doc, err := answered(b.api.GetCatalog(t.Context(), nil))
	check(t, err)
	if len(doc.Value.Models) != 0 {
		t.Errorf("a refused document wrote %s", doc.Body)
	}
}

func TestCurrencyIsFixedOnceMoneyIsBooked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	euro := strings.Replace(demoCatalog, "USD", "EUR", 1)
	b.apply(euro)
	a := b.account(1)
	if a.Balance.Currency != "EUR" {
		t.Errorf("currency %s; want EUR", a.Balance.Currency)
	}
	b.credit(a.ID, "1.00", "r")
	r := b.try(demoCatalog, false)
	problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	if errs := r.Problem.Errors; len(errs) != 1 || errs[0].Field != "currency" {
		t.Errorf("another currency: %s", r.Body)
	}
}

func TestGrants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(demoCatalog)
	a := b.account(1)
	for range 2 { // granting twice is no error
		r, err := answered(b.api.GrantModel(t.Context(), a.ID, "demo/image", nil))
		check(t, err)
		if r.StatusCode != http.StatusNoContent {
			t.Fatalf("grant: %s", r.Body)
		}
	}
	granted := func() []string {
		r, err := answered(b.api.ListGrants(t.Context(), a.ID))
		check(t, err)
		return r.Value.Models
	}
	if diff := cmp.Diff([]string{"demo/image"}, granted()); diff != "" {
		t.Errorf("granted (-want +got):\n%s", diff)
	}
	if got := b.apply(demoCatalog); len(got.Changes) != 0 {
		t.Errorf("a document without grants changed them: %+v", got)
	}
	unknown, err := answered(b.api.GrantModel(t.Context(), a.ID, "nothing", nil))
	check(t, err)
	problem(t, unknown.Problem, http.StatusNotFound, "not_found")
	nobody, err := answered(b.api.GrantModel(t.Context(), "acc_00000000000070008000000000000000", "demo/image", nil))
	check(t, err)
	problem(t, nobody.Problem, http.StatusNotFound, "not_found")
	for range 2 {
		r, err := answered(b.api.WithdrawModel(t.Context(), a.ID, "demo/image", nil))
		check(t, err)
		if r.StatusCode != http.StatusNoContent {
			t.Fatalf("withdraw: %s", r.Body)
		}
	}
	if diff := cmp.Diff([]string{}, granted()); diff != "" {
		t.Errorf("after withdrawing (-want +got):\n%s", diff)
	}
}
