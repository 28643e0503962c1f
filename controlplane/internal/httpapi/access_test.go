package httpapi_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	b := start(t)
	made, err := servertest.Answered(b.API.CreateToken(t.Context(), nil, adminclient.TokenCreate{
		Name: "cabinet", Scopes: []adminclient.Scope{adminclient.ScopeCabinet}, ExpiresAt: new(time.Now().Add(time.Hour)),
	}))
	servertest.Check(t, err)
	cabinet := b.As(made.Value.Secret)
	if r, err := servertest.Answered(cabinet.ListAccounts(t.Context(), nil)); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("with a new token: %s, %v", r.Body, err)
	}
	listed, err := servertest.Answered(b.API.ListTokens(t.Context(), nil))
	servertest.Check(t, err)
	if got := listed.Value.Data; len(got) != 1 || got[0].ID != made.Value.ID || got[0].LastUsedAt == nil || got[0].RevokedAt != nil {
		t.Errorf("listed: %s", listed.Body)
	}
	if strings.Contains(string(listed.Body), made.Value.Secret) {
		t.Error("the list shows the secret")
	}
	for range 2 { // revoking twice is no error
		if r, err := servertest.Answered(b.API.RevokeToken(t.Context(), made.Value.ID)); err != nil || r.StatusCode != http.StatusNoContent {
			t.Fatalf("revoke: %s, %v", r.Body, err)
		}
	}
	after, err := servertest.Answered(cabinet.ListAccounts(t.Context(), nil))
	servertest.Check(t, err)
	servertest.Problem(t, after.Problem, http.StatusUnauthorized, "unauthenticated")

	invalid, err := servertest.Answered(b.API.CreateToken(t.Context(), nil, adminclient.TokenCreate{Scopes: []adminclient.Scope{"root"}}))
	servertest.Check(t, err)
	servertest.Problem(t, invalid.Problem, http.StatusBadRequest, "invalid_input")
	missing, err := servertest.Answered(b.API.RevokeToken(t.Context(), "tok_00000000000070008000000000000000"))
	servertest.Check(t, err)
	servertest.Problem(t, missing.Problem, http.StatusNotFound, "not_found")
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	t.Parallel()
	b := start(t)
	const bearer = "Bearer " + servertest.BootstrapToken
	for _, test := range []struct {
		name, method, path, contentType, body string
		status                                int
		kind                                  string
	}{
		{"no such path", "GET", "/admin/v1/nothing", "", "", 404, "not_found"},
		{"no such method", "PUT", "/admin/v1/accounts", "", "", 405, "method_not_allowed"},
		{"not JSON", "POST", "/admin/v1/accounts", "application/json", "{", 400, "invalid_input"},
		{"two values", "POST", "/admin/v1/accounts", "application/json", `{"name":"x"}{}`, 400, "invalid_input"},
		{"unknown member", "POST", "/admin/v1/accounts", "application/json", `{"name":"x","colour":"red"}`, 400, "invalid_input"},
		{"member twice", "POST", "/admin/v1/accounts", "application/json", `{"name":"x","name":"y"}`, 400, "invalid_input"},
		{"wrong kind", "POST", "/admin/v1/accounts", "application/json", `{"name":7}`, 400, "invalid_input"},
		{"no name", "POST", "/admin/v1/accounts", "application/json", `{}`, 400, "invalid_input"},
		{"wrong media type", "POST", "/admin/v1/accounts", "text/plain", `{"name":"x"}`, 415, "unsupported_media_type"},
		{"no media type of a catalog", "PUT", "/admin/v1/catalog", "text/plain", `{}`, 415, "unsupported_media_type"},
		{"too large", "POST", "/admin/v1/accounts", "application/json", `{"name":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "body_too_large"},
		{"malformed parameter", "GET", "/admin/v1/accounts?limit=many", "", "", 400, "invalid_input"},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer, text := b.Send(bearer, test.method, test.path, test.contentType, test.body)
			if answer.StatusCode != test.status || !strings.Contains(text, `"/problems/`+test.kind+`"`) {
				t.Errorf("got %d %s; want %d %s", answer.StatusCode, text, test.status, test.kind)
			}
			if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("content type %q", got)
			}
			if id := answer.Header.Get("X-Request-Id"); id == "" || !strings.Contains(text, id) {
				t.Errorf("request id %q is not the instance of %s", id, text)
			}
		})
	}
}

func TestInternalErrorIsNotRevealed(t *testing.T) {
	t.Parallel()
	b := start(t)
	_, err := b.DB.Pool().Exec(t.Context(), "alter table accounts rename to hidden")
	servertest.Check(t, err)
	answer, text := b.Send("Bearer "+servertest.BootstrapToken, "GET", "/admin/v1/accounts", "", "")
	if answer.StatusCode != http.StatusInternalServerError || !strings.Contains(text, "internal_error") || strings.Contains(text, "accounts") {
		t.Errorf("got %d %s; want 500 without the cause", answer.StatusCode, text)
	}
}

func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	b := start(t)
	answer, text := b.Send("", "GET", "/openapi.yaml", "", "")
	if answer.StatusCode != http.StatusOK || text != string(api.Document) {
		t.Errorf("got %d and %d bytes", answer.StatusCode, len(text))
	}
}

func TestAuditLogRecordsChanges(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	k := b.Key(a.ID, "1.00")
	_, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, nil, adminclient.AccountPatch{Name: new("Renamed")}))
	servertest.Check(t, err)
	_, err = servertest.Answered(b.API.RevealKey(t.Context(), k.ID))
	servertest.Check(t, err)
	_, err = servertest.Answered(b.API.RevokeKey(t.Context(), k.ID, nil))
	servertest.Check(t, err)
	b.Credit(a.ID, "1.00", "r")

	r, err := servertest.Answered(b.API.ListAudit(t.Context(), nil))
	servertest.Check(t, err)
	var got []string
	for _, e := range r.Value.Data {
		got = append(got, e.Action+" "+e.Object+" by "+e.Actor)
		if e.RequestID == nil {
			t.Errorf("no request id: %+v", e)
		}
	}
	want := []string{
		"ledger.payment " + a.ID + " by bootstrap", "key.revoke " + k.ID + " by bootstrap", "key.reveal " + k.ID + " by bootstrap",
		"account.update " + a.ID + " by bootstrap", "key.create " + k.ID + " by bootstrap",
		"account.create " + a.ID + " by bootstrap",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
	if strings.Contains(string(r.Body), k.Secret) {
		t.Error("the audit log shows a key")
	}
	page, err := servertest.Answered(b.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Object: &a.ID, Limit: new(1)}))
	servertest.Check(t, err)
	page, err = servertest.Answered(b.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Object: &a.ID, Limit: new(1), Cursor: page.Value.NextCursor}))
	servertest.Check(t, err)
	update := page.Value.Data[0]
	before, _ := update.Before.(map[string]any)
	after, _ := update.After.(map[string]any)
	if update.Action != "account.update" || before["name"] != "Example" || after["name"] != "Renamed" {
		t.Errorf("second entry of the account: %+v, members %v", update, slices.Sorted(maps.Keys(after)))
	}
}

func TestAuditFilters(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	k := b.Key(a.ID, "")
	_, err := servertest.Answered(b.API.RevealKey(t.Context(), k.ID))
	servertest.Check(t, err)
	begin := time.Now()
	b.Key(a.ID, "")
	whole, err := servertest.Answered(b.API.ListAudit(t.Context(), nil))
	servertest.Check(t, err)
	all := whole.Value.Data
	if len(all) != 4 {
		t.Fatalf("audit log: %s", whole.Body)
	}
	for _, test := range []struct {
		name   string
		params adminclient.ListAuditParams
		want   []string
	}{
		{"actor", adminclient.ListAuditParams{Actor: &all[0].Actor}, []string{"key.create", "key.reveal", "key.create", "account.create"}},
		{"another actor", adminclient.ListAuditParams{Actor: new("nobody")}, nil},
		{"action", adminclient.ListAuditParams{Action: new("key.reveal")}, []string{"key.reveal"}},
		{"subject", adminclient.ListAuditParams{Action: new("key")}, []string{"key.create", "key.reveal", "key.create"}},
		{"a part of a subject", adminclient.ListAuditParams{Action: new("ke_")}, nil},
		{"request", adminclient.ListAuditParams{RequestID: all[3].RequestID}, []string{"account.create"}},
		{"from", adminclient.ListAuditParams{From: &begin}, []string{"key.create"}},
		{"to", adminclient.ListAuditParams{To: &all[2].At}, []string{"account.create"}},
		{"all filters", adminclient.ListAuditParams{
			Object: &k.ID, Actor: &all[0].Actor, Action: new("key"), From: &all[2].At, To: &begin,
		}, []string{"key.reveal", "key.create"}},
	} {
		r, err := servertest.Answered(b.API.ListAudit(t.Context(), &test.params))
		servertest.Check(t, err)
		if got := servertest.IDsOf(r.Value.Data, func(e adminclient.AuditEntry) string { return e.Action }); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v; want %v", test.name, got, test.want)
		}
	}
	r, err := servertest.Answered(b.API.ListAudit(t.Context(), &adminclient.ListAuditParams{From: &begin, To: &all[3].At}))
	servertest.Check(t, err)
	servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
}
