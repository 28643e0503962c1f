package adminclient_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
)

func TestErrorResponse(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer the token" {
			t.Errorf("authorization %q", got)
		}
		if got := r.URL.EscapedPath(); got != "/admin/v1/accounts/acc_1/models/a%2Fb" {
			t.Errorf("path %q", got)
		}
		if got := r.URL.RawQuery; got != "wait=applied" {
			t.Errorf("query %q", got)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"type":"/problems/invalid_input","title":"The request is not valid","status":400,
			"errors":[{"field":"name","detail":"is missing"},{"field":"a.b","detail":"is not a number"}]}`))
	}))
	defer server.Close()
	c, err := adminclient.New(server.URL, "the token")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.GrantModel(t.Context(), "acc_1", "a/b", &adminclient.GrantModelParams{Wait: new(adminclient.WaitForApplied)})
	e, ok := errors.AsType[*adminclient.Error](err)
	if !ok {
		t.Fatalf("got %v; want an Error", err)
	}
	if want := "The request is not valid (400): name is missing; a.b is not a number"; e.Error() != want {
		t.Errorf("got %s; want %s", e, want)
	}
	if e.StatusCode != http.StatusBadRequest || e.Code != "invalid_input" || adminclient.Code(err) != e.Code || e.RetryAfter != 7*time.Second {
		t.Errorf("got %+v", e)
	}
}

func TestOptionalMembersOfPatches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		patch adminclient.KeyPatch
		want  string
	}{
		{adminclient.KeyPatch{}, `{}`},
		{adminclient.KeyPatch{SpendLimit: optional.Null[string]()}, `{"spend_limit":null}`},
		{adminclient.KeyPatch{SpendLimit: optional.Of("5.00")}, `{"spend_limit":"5.00"}`},
	} {
		text, err := json.Marshal(test.patch)
		if err != nil || string(text) != test.want {
			t.Errorf("got %s, %v; want %s", text, err, test.want)
		}
		var back adminclient.KeyPatch
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, test.patch) {
			t.Errorf("%s decoded to %+v", test.want, back)
		}
	}
}

// serve returns a client of a server that answers every request with the function.
func serve(t *testing.T, answer http.HandlerFunc) *adminclient.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := adminclient.New(server.URL+"/", "token")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestParametersAndBodyAreEncoded(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("ETag", r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("If-Match")+" "+string(body))
		_, _ = io.WriteString(w, `{"currency": "EUR", "name": "x"}`)
	})
	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	listed, err := c.ListUsage(t.Context(), &adminclient.ListUsageParams{Limit: new(3), From: &from, Model: new("a b/c")})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := listed.Header.Get("ETag"), "GET /admin/v1/usage?from=2026-01-02T03%3A04%3A05Z&limit=3&model=a+b%2Fc"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	totals, err := c.GetUsageTotals(t.Context(), &adminclient.GetUsageTotalsParams{
		GroupBy: []adminclient.UsageGroup{adminclient.UsageGroupDay, adminclient.UsageGroupModel},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := totals.Header.Get("ETag"), "GET /admin/v1/usage/totals?group_by=day%2Cmodel"; got != want || totals.Value.Currency != "EUR" {
		t.Errorf("got %q, %+v; want %q", got, totals.Value, want)
	}
	updated, err := c.UpdateAccount(t.Context(), "acc_1", &adminclient.UpdateAccountParams{IfMatch: new("*")}, adminclient.AccountPatch{Name: new("x")})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := updated.Header.Get("ETag"), `PATCH /admin/v1/accounts/acc_1 * {"name":"x"}`; got != want || updated.Value.Name != "x" {
		t.Errorf("got %q, %+v; want %q", got, updated.Value, want)
	}
	applied, err := c.ApplyCatalog(t.Context(), nil, adminclient.CatalogDocument{}, adminclient.WithBody("application/yaml", []byte("a: b")))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := applied.Header.Get("ETag"), "PUT /admin/v1/catalog  a: b"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestErrorWithoutProblemDocument(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no server", http.StatusBadGateway) })
	_, err := c.ListAccounts(t.Context(), nil)
	if err == nil || err.Error() != "Bad Gateway (502)" || adminclient.Code(err) != "" {
		t.Errorf("got %v", err)
	}
}

func TestExportIsCompleteOnlyWithItsTrailers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		complete string
		want     error
	}{"complete": {"true", nil}, "incomplete": {"", adminclient.ErrIncomplete}} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Export-Rows, Export-Complete, Export-Cursor")
			_, _ = io.WriteString(w, "a row\n")
			w.Header().Set("Export-Rows", "1")
			w.Header().Set("Export-Cursor", "last")
			w.Header().Set("Export-Complete", test.complete)
		})
		export, err := c.ExportUsage(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		summary, err := export.CopyTo(io.Discard)
		if !errors.Is(err, test.want) || test.want == nil && summary != (adminclient.ExportSummary{Rows: 1, Cursor: "last"}) {
			t.Errorf("%s: got %+v, %v; want %v", name, summary, err, test.want)
		}
	}
}
