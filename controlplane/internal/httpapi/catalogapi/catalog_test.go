package catalogapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestCatalogIsAppliedAndExported(t *testing.T) {
	t.Parallel()
	b := start(t)
	want := []string{
		"update settings " + "settings", "create provider sim", "create credential sim/main",
		"create model demo-chat", "create price demo-chat", "create route …",
		"create model demo/image", "create price demo/image", "create route …",
	}
	dry := b.Try(servertest.DemoCatalog, true)
	for _, c := range dry.Value.Changes {
		if c.Kind == adminclient.CatalogChangeKindRoute && (len(c.Calls) == 0 || !strings.HasPrefix(c.Calls[0].After, "http") || c.Calls[0].Route != c.ID) {
			t.Errorf("the new route %s has the calls %+v; want the address that is called", c.ID, c.Calls)
		}
	}
	if diff := cmp.Diff(want, servertest.Summary(dry.Value)); diff != "" || !dry.Value.DryRun || dry.Value.Revision != 0 {
		t.Errorf("dry run at %d (-want +got):\n%s", dry.Value.Revision, diff)
	}
	applied := b.Apply(servertest.DemoCatalog)
	if diff := cmp.Diff(want, servertest.Summary(applied)); diff != "" || applied.Revision == 0 {
		t.Errorf("applied as %d (-want +got):\n%s", applied.Revision, diff)
	}
	if again := b.Apply(servertest.DemoCatalog); len(again.Changes) != 0 || again.Revision != applied.Revision {
		t.Errorf("applied again: %+v; want nothing at %d", again, applied.Revision)
	}
	if strings.Contains(string(dry.Body), "sk-of-the-provider") {
		t.Error("the answer shows a secret")
	}
}

// An exported catalog can be applied again, as JSON and as YAML.
func TestExportedCatalogCanBeApplied(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	yaml, err := servertest.Answered(b.API.GetCatalog(t.Context(), &adminclient.GetCatalogParams{Accept: new("application/yaml")}))
	servertest.Check(t, err)
	if got := b.Apply(string(yaml.Body)); len(got.Changes) != 0 {
		t.Errorf("YAML applied again: %+v\n%s", got, yaml.Body)
	}
	json, err := servertest.Answered(b.API.GetCatalog(t.Context(), nil))
	servertest.Check(t, err)
	again, err := servertest.Answered(b.API.ApplyCatalog(t.Context(), nil, *json.Value))
	servertest.Check(t, err)
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
	b := start(t)
	r := b.Try(`
currency: dollars
colour: red
providers: [{id: sim, base_url: "ftp://x"}]
`, false)
	servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	unpriced := strings.Replace(servertest.DemoCatalog, "      input: \"1.00\"\n", "", 1)
	r = b.Try(strings.Replace(unpriced, "provider: sim, upstream_model: sim-image", "provider: other", 1), false)
	servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	var fields []string
	for _, e := range r.Problem.Errors {
		fields = append(fields, e.Field)
	}
	want := []string{"models[0].price.input", "models[1].routes[0].provider", "models[1].routes[0].upstream_model"}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	r = b.Try(strings.Replace(servertest.DemoCatalog, "secret: sk-of-the-provider", "", 1), false)
	if errs := r.Problem.Errors; len(errs) != 1 || errs[0].Field != "providers[0].credentials[0].secret" {
		t.Errorf("without a secret: %s", r.Body)
	}
	r = b.Try(servertest.DemoCatalog+"grants: [{account_id: acc_00000000000070008000000000000000, models: [demo-chat]}]\n", false)
	servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	doc, err := servertest.Answered(b.API.GetCatalog(t.Context(), nil))
	servertest.Check(t, err)
	if len(doc.Value.Models) != 0 {
		t.Errorf("a refused document wrote %s", doc.Body)
	}
}

func TestCurrencyIsFixedOnceMoneyIsBooked(t *testing.T) {
	t.Parallel()
	b := start(t)
	euro := strings.Replace(servertest.DemoCatalog, "USD", "EUR", 1)
	b.Apply(euro)
	a := b.Account(1)
	if a.Balance.Currency != "EUR" {
		t.Errorf("currency %s; want EUR", a.Balance.Currency)
	}
	b.Credit(a.ID, "1.00", "r")
	r := b.Try(servertest.DemoCatalog, false)
	servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	if errs := r.Problem.Errors; len(errs) != 1 || errs[0].Field != "currency" {
		t.Errorf("another currency: %s", r.Body)
	}
}

func TestGrants(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	a := b.Account(1)
	for range 2 { // granting twice is no error
		r, err := servertest.Answered(b.API.GrantModel(t.Context(), a.ID, "demo/image", nil))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusNoContent {
			t.Fatalf("grant: %s", r.Body)
		}
	}
	granted := func() []string {
		r, err := servertest.Answered(b.API.ListGrants(t.Context(), a.ID))
		servertest.Check(t, err)
		return r.Value.Models
	}
	if diff := cmp.Diff([]string{"demo/image"}, granted()); diff != "" {
		t.Errorf("granted (-want +got):\n%s", diff)
	}
	if got := b.Apply(servertest.DemoCatalog); len(got.Changes) != 0 {
		t.Errorf("a document without grants changed them: %+v", got)
	}
	unknown, err := servertest.Answered(b.API.GrantModel(t.Context(), a.ID, "nothing", nil))
	servertest.Check(t, err)
	servertest.Problem(t, unknown.Problem, http.StatusNotFound, "not_found")
	nobody, err := servertest.Answered(b.API.GrantModel(t.Context(), "acc_00000000000070008000000000000000", "demo/image", nil))
	servertest.Check(t, err)
	servertest.Problem(t, nobody.Problem, http.StatusNotFound, "not_found")
	for range 2 {
		r, err := servertest.Answered(b.API.WithdrawModel(t.Context(), a.ID, "demo/image", nil))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusNoContent {
			t.Fatalf("withdraw: %s", r.Body)
		}
	}
	if diff := cmp.Diff([]string{}, granted()); diff != "" {
		t.Errorf("after withdrawing (-want +got):\n%s", diff)
	}
}
