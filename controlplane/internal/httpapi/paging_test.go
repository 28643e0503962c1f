package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
)

// walk reads a list page by page and returns its ids. It calls a function between the pages.
func walk(t *testing.T, list func(limit *int, cursor *string) (ids []string, next *string), between func()) []string {
	t.Helper()
	var found []string
	var cursor *string
	for range 20 {
		ids, next := list(new(2), cursor)
		if len(ids) > 2 || next != nil && len(ids) != 2 {
			t.Errorf("a page of 2 holds %v", ids)
		}
		found = append(found, ids...)
		if cursor = next; cursor == nil {
			return found
		}
		between()
	}
	t.Fatalf("no end after %v", found)
	return nil
}

func idsOf[E any](list []E, id func(E) string) []string {
	var ids []string
	for _, e := range list {
		ids = append(ids, id(e))
	}
	return ids
}

// Every list of the catalog, and that of tokens, can be read page by page in its order.
func TestCatalogListsArePaged(t *testing.T) {
	t.Parallel()
	b := setup(t)
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
	b.catalogOf(doc.String())
	for i := range 3 {
		at := time.Now().AddDate(1, i, 0)
		_, err := answered(b.api.CreatePrice(t.Context(), "m0", nil, adminclient.PriceCreate{
			Price: adminclient.CatalogPrice{Input: new("3"), Output: new("4")}, EffectiveFrom: &at,
		}))
		check(t, err)
		_, err = answered(b.api.CreateToken(t.Context(), nil, adminclient.TokenCreate{Name: fmt.Sprint("t", i), Scopes: []adminclient.Scope{adminclient.ScopeRead}}))
		check(t, err)
	}
	for name, list := range map[string]func(limit *int, cursor *string) ([]string, *string){
		"providers": func(limit *int, cursor *string) ([]string, *string) {
			r, err := answered(b.api.ListProviders(t.Context(), &adminclient.ListProvidersParams{Limit: limit, Cursor: cursor}))
			check(t, err)
			return idsOf(r.Value.Data, func(e adminclient.CatalogProvider) string { return e.ID }), r.Value.NextCursor
		},
		"credentials": func(limit *int, cursor *string) ([]string, *string) {
			r, err := answered(b.api.ListCredentials(t.Context(), "p1", &adminclient.ListCredentialsParams{Limit: limit, Cursor: cursor}))
			check(t, err)
			return idsOf(r.Value.Data, func(e adminclient.CatalogCredential) string { return e.Name }), r.Value.NextCursor
		},
		"models": func(limit *int, cursor *string) ([]string, *string) {
			r, err := answered(b.api.ListModels(t.Context(), &adminclient.ListModelsParams{Limit: limit, Cursor: cursor}))
			check(t, err)
			return idsOf(r.Value.Data, func(e adminclient.CatalogModel) string { return e.ID }), r.Value.NextCursor
		},
		"routes": func(limit *int, cursor *string) ([]string, *string) {
			r, err := answered(b.api.ListRoutes(t.Context(), "m0", &adminclient.ListRoutesParams{Limit: limit, Cursor: cursor}))
			check(t, err)
			return idsOf(r.Value.Data, func(e adminclient.CatalogRoute) string { return *e.ID }), r.Value.NextCursor
		},
		"prices": func(limit *int, cursor *string) ([]string, *string) {
			r, err := answered(b.api.ListPrices(t.Context(), "m0", &adminclient.ListPricesParams{Limit: limit, Cursor: cursor}))
			check(t, err)
			return idsOf(r.Value.Data, func(e adminclient.PriceVersion) string { return e.EffectiveFrom.String() }), r.Value.NextCursor
		},
		"tokens": func(limit *int, cursor *string) ([]string, *string) {
			r, err := answered(b.api.ListTokens(t.Context(), &adminclient.ListTokensParams{Limit: limit, Cursor: cursor}))
			check(t, err)
			return idsOf(r.Value.Data, func(e adminclient.Token) string { return e.ID }), r.Value.NextCursor
		},
	} {
		whole, more := list(nil, nil)
		if more != nil || len(whole) < 3 {
			t.Errorf("%s: got %v whole", name, whole)
		}
		if got := walk(t, list, func() {}); !slices.Equal(got, whole) {
			t.Errorf("%s: got %v by pages; want %v", name, got, whole)
		}
	}
	for name, params := range map[string]adminclient.ListModelsParams{
		"limit": {Limit: new(0)}, "cursor": {Cursor: new("?")},
	} {
		r, err := answered(b.api.ListModels(t.Context(), &params))
		check(t, err)
		problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
		if p := r.Problem; p != nil && p.Errors[0].Field != name {
			t.Errorf("%s: %s", name, r.Body)
		}
	}
}

// If the last entry of a page is removed, the next page continues after it.
func TestPagesContinueAfterRemovals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.catalogOf(smallCatalog)
	for _, id := range []string{"n1", "n2", "n3", "n4", "n5"} {
		made, err := answered(b.api.PutProvider(t.Context(), id, nil, adminclient.CatalogProvider{ID: id, BaseURL: "https://new.example"}))
		check(t, err)
		if made.StatusCode != http.StatusCreated {
			t.Fatalf("%s", made.Body)
		}
	}
	got := walk(t, func(limit *int, cursor *string) ([]string, *string) {
		r, err := answered(b.api.ListProviders(t.Context(), &adminclient.ListProvidersParams{Limit: limit, Cursor: cursor}))
		check(t, err)
		return idsOf(r.Value.Data, func(e adminclient.CatalogProvider) string { return e.ID }), r.Value.NextCursor
	}, func() {
		_, err := answered(b.api.DeleteProvider(t.Context(), "n2", nil))
		check(t, err)
	})
	if want := []string{"n1", "n2", "n3", "n4", "n5", "sim"}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}
