package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

// Every list of the catalog, and that of tokens, can be read page by page in its order.
func TestCatalogListsArePaged(t *testing.T) {
	t.Parallel()
	b := start(t)
	var doc strings.Builder
	doc.WriteString("currency: USD\nproviders:\n")
	for i := range 5 {
		fmt.Fprintf(&doc, "- id: p%d\n  base_url: https://sim.example\n  credentials:\n", i)
		for j := range 3 {
			fmt.Fprintf(&doc, "  - {name: c%d, secret: sk-%d}\n", j, j)
		}
	}
	doc.WriteString("models:\n")
	for i := range 5 {
		fmt.Fprintf(&doc, "- id: m%d\n  type: text\n  price: {input: \"1\", output: \"2\"}\n  routes:\n", i)
		for j, priority := range []int{10, 1, 2, 0, 2} {
			fmt.Fprintf(&doc, "  - {id: r%d-%d, provider: p%d, upstream_model: up, priority: %d, formats: [chat]}\n", i, j, j, priority)
		}
	}
	b.Apply(doc.String())
	for i := range 3 {
		at := time.Now().AddDate(1, i, 0)
		_, err := servertest.Answered(b.API.CreatePrice(t.Context(), "m0", nil, adminclient.PriceCreate{
			Price: adminclient.CatalogPrice{Input: new("3"), Output: new("4")}, EffectiveFrom: &at,
		}))
		servertest.Check(t, err)
		_, err = servertest.Answered(b.API.CreateToken(t.Context(), nil, adminclient.TokenCreate{Name: fmt.Sprint("t", i), Scopes: []adminclient.Scope{adminclient.ScopeRead}}))
		servertest.Check(t, err)
	}
	for name, list := range map[string]func(limit *int, cursor *string) ([]string, *string){
		"providers": func(limit *int, cursor *string) ([]string, *string) {
			r, err := servertest.Answered(b.API.ListProviders(t.Context(), &adminclient.ListProvidersParams{Limit: limit, Cursor: cursor}))
			servertest.Check(t, err)
			return servertest.IDsOf(r.Value.Data, func(e adminclient.CatalogProvider) string { return e.ID }), r.Value.NextCursor
		},
		"credentials": func(limit *int, cursor *string) ([]string, *string) {
			r, err := servertest.Answered(b.API.ListCredentials(t.Context(), "p1", &adminclient.ListCredentialsParams{Limit: limit, Cursor: cursor}))
			servertest.Check(t, err)
			return servertest.IDsOf(r.Value.Data, func(e adminclient.CatalogCredential) string { return e.Name }), r.Value.NextCursor
		},
		"models": func(limit *int, cursor *string) ([]string, *string) {
			r, err := servertest.Answered(b.API.ListModels(t.Context(), &adminclient.ListModelsParams{Limit: limit, Cursor: cursor}))
			servertest.Check(t, err)
			return servertest.IDsOf(r.Value.Data, func(e adminclient.CatalogModel) string { return e.ID }), r.Value.NextCursor
		},
		"routes": func(limit *int, cursor *string) ([]string, *string) {
			r, err := servertest.Answered(b.API.ListRoutes(t.Context(), "m0", &adminclient.ListRoutesParams{Limit: limit, Cursor: cursor}))
			servertest.Check(t, err)
			return servertest.IDsOf(r.Value.Data, func(e adminclient.CatalogRoute) string { return *e.ID }), r.Value.NextCursor
		},
		"prices": func(limit *int, cursor *string) ([]string, *string) {
			r, err := servertest.Answered(b.API.ListPrices(t.Context(), "m0", &adminclient.ListPricesParams{Limit: limit, Cursor: cursor}))
			servertest.Check(t, err)
			return servertest.IDsOf(r.Value.Data, func(e adminclient.PriceVersion) string { return e.EffectiveFrom.String() }), r.Value.NextCursor
		},
		"tokens": func(limit *int, cursor *string) ([]string, *string) {
			r, err := servertest.Answered(b.API.ListTokens(t.Context(), &adminclient.ListTokensParams{Limit: limit, Cursor: cursor}))
			servertest.Check(t, err)
			return servertest.IDsOf(r.Value.Data, func(e adminclient.Token) string { return e.ID }), r.Value.NextCursor
		},
	} {
		whole, more := list(nil, nil)
		if more != nil || len(whole) < 3 {
			t.Errorf("%s: got %v whole", name, whole)
		}
		if got := servertest.Walk(t, list, func() {}); !slices.Equal(got, whole) {
			t.Errorf("%s: got %v by pages; want %v", name, got, whole)
		}
	}
	for name, params := range map[string]adminclient.ListModelsParams{
		"limit": {Limit: new(0)}, "cursor": {Cursor: new("?")},
	} {
		r, err := servertest.Answered(b.API.ListModels(t.Context(), &params))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
		if p := r.Problem; p != nil && p.Errors[0].Field != name {
			t.Errorf("%s: %s", name, r.Body)
		}
	}
}

// If the last entry of a page is removed, the next page continues after it.
func TestPagesContinueAfterRemovals(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.SmallCatalog)
	for _, id := range []string{"n1", "n2", "n3", "n4", "n5"} {
		made, err := servertest.Answered(b.API.PutProvider(t.Context(), id, nil, adminclient.CatalogProvider{ID: id, BaseURL: "https://new.example"}))
		servertest.Check(t, err)
		if made.StatusCode != http.StatusCreated {
			t.Fatalf("%s", made.Body)
		}
	}
	got := servertest.Walk(t, func(limit *int, cursor *string) ([]string, *string) {
		r, err := servertest.Answered(b.API.ListProviders(t.Context(), &adminclient.ListProvidersParams{Limit: limit, Cursor: cursor}))
		servertest.Check(t, err)
		return servertest.IDsOf(r.Value.Data, func(e adminclient.CatalogProvider) string { return e.ID }), r.Value.NextCursor
	}, func() {
		_, err := servertest.Answered(b.API.DeleteProvider(t.Context(), "n2", nil))
		servertest.Check(t, err)
	})
	if want := []string{"n1", "n2", "n3", "n4", "n5", "sim"}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}
