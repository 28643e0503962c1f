package catalogpages_test

import (
	"html"
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

const priceListPath = "/console/catalog/price-list"

// upload sends the form that imports a price list.
func upload(b *consoletest.Browser, file string, values ...string) (*http.Response, string) {
	b.World.T.Helper()
	return b.UploadTo(priceListPath, "prices", file, values...)
}

const priceListFile = "\ufeff" + `{
	"example-small": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 2.5e-07, "output_cost_per_token": 4e-07},
	"<script src=x>": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06},
	"<img src=x>": {"litellm_provider": "nobody", "mode": "chat"}
}`

// textarea returns the text of the only text area of a page.
func textarea(t *testing.T, page string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "<textarea")
	_, rest, _ = strings.Cut(rest, ">\n")
	text, _, closed := strings.Cut(rest, "</textarea>")
	if !found || !closed {
		t.Fatalf("the page has no text area: %s", page)
	}
	return html.UnescapeString(text)
}

func TestPriceListIsReviewedAndApplied(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	if _, page := b.Get("/console/catalog"); !strings.Contains(page, priceListPath) {
		t.Error("the page of the catalog does not lead to the import")
	}
	answer, page := upload(b, priceListFile)
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("upload: got %d: %s", answer.StatusCode, page)
	}
	for _, want := range []string{
		"1 new price", "becomes twice as high or more", "0.<b>10</b>", "0.<b>25</b>", "Apply this change", "1 entry has no model", "Add this model",
		"1 part of the list", "&lt;img src=x&gt;", "Nothing is applied yet",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the review does not have %q: %s", want, page)
		}
	}
	for _, never := range []string{"<script src", "<img", "<b>prices", "sk-acme"} {
		if strings.Contains(page, never) {
			t.Errorf("the review has %s as it was sent", never)
		}
	}
	document := textarea(t, page)
	apply := func() (*http.Response, string) {
		return b.Post("/console/catalog", "document", document, "if_match", consoletest.Hidden(t, page, "if_match"), "step", "do")
	}
	if answer, page := apply(); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("apply: got %d: %s", answer.StatusCode, page)
	}
	now, err := w.API.GetModel(t.Context(), "example-small")
	servertest.Check(t, err)
	if *now.Value.Price.Input != "0.25" || *now.Value.Price.Output != "0.40" || now.Value.Params == nil {
		t.Errorf("the model is %+v", now.Value)
	}
	if answer, page := upload(b, priceListFile); answer.StatusCode != http.StatusOK || !strings.Contains(page, "The list changes no price") {
		t.Errorf("the same list again: got %d: %s", answer.StatusCode, page)
	}
	_, err = w.API.UpdateModel(t.Context(), "example-small", nil, adminclient.CatalogModelPatch{DisplayName: new("Another")})
	servertest.Check(t, err)
	if answer, page := apply(); answer.StatusCode != http.StatusPreconditionFailed || !strings.Contains(page, "Nothing was applied") {
		t.Errorf("an older review: got %d: %s", answer.StatusCode, page)
	}
}

func TestInvalidPriceListsAreShownInTheForm(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	for _, tt := range []struct {
		file, want string
		values     []string
	}{
		{file: "", want: "must be chosen"},
		{file: "<html>", want: "is not JSON: invalid character"},
		{file: "PK\x03\x04", want: "is not JSON"},
		{file: "[]", want: "must be"},
		{file: "null", want: "is not a price list"},
		{file: `{"a": 1}`, want: "none of its entries is an object"},
		{file: `{"a": {}} {}`, want: "is not JSON"},
		{file: `{"\u0000": {}}`, want: "prices"},
		{file: "{\"\xff\": {}}", want: "UTF-8"},
		{file: strings.Repeat("[", 100000), want: "is not JSON"},
		{file: `{"a": {"b": "` + strings.Repeat("x", 9<<20) + `"}}`, want: "is larger than 8 MiB"},
		{file: strings.Repeat("x", 17<<20), want: "its file is too large"},
		{file: "{}", want: "must be a factor", values: []string{"markup", "=1+1"}},
		{file: "{}", want: "must be one of anthropic", values: []string{"providers", "../openai"}},
		{file: "{}", want: "must be a pattern", values: []string{"models", "["}},
		{file: "{}", want: "but the prices of the catalog are in USD", values: []string{"currency", "EUR"}},
	} {
		answer, page := upload(b, tt.file, tt.values...)
		if answer.StatusCode >= http.StatusInternalServerError || !strings.Contains(page, tt.want) {
			t.Errorf("%.20q %q: got %d; want %q: %.3000s", tt.file, tt.values, answer.StatusCode, tt.want, page)
		}
	}
}

func TestOnlyThoseWhoMayChangeTheCatalogImportPrices(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	_, text := w.NewToken(adminclient.ScopeObserve)
	b := w.SignedIn(text)
	for _, path := range []string{"/console/models", "/console/models/example-small", "/console/providers"} {
		if _, page := b.Get(path); strings.Contains(page, "price-list") {
			t.Errorf("%s leads to the import", path)
		}
	}
	if answer, page := b.Get(priceListPath); answer.StatusCode != http.StatusForbidden || strings.Contains(page, `type="file"`) {
		t.Errorf("the form: got %d: %s", answer.StatusCode, page)
	}
	if answer, page := b.Post(priceListPath, "step", "do", "prices", priceListFile); answer.StatusCode != http.StatusForbidden {
		t.Errorf("an upload: got %d: %s", answer.StatusCode, page)
	}
	operator := w.SignedIn(servertest.BootstrapToken)
	answer, page := operator.Send(http.MethodPost, priceListPath, nil, http.Header{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}})
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("an upload from another site: got %d: %s", answer.StatusCode, page)
	}
}
