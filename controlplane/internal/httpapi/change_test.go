package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/wire"
)

func TestIfMatch(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	read, err := servertest.Answered(b.API.GetAccount(t.Context(), a.ID))
	servertest.Check(t, err)
	tag := read.Header.Get("ETag")
	rename := func(match, name string) *servertest.Answer[adminclient.Account] {
		params := &adminclient.UpdateAccountParams{}
		if match != "" {
			params.IfMatch = &match
		}
		r, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, params, adminclient.AccountPatch{Name: &name}))
		servertest.Check(t, err)
		return r
	}
	first := rename(tag, "first")
	if first.StatusCode != http.StatusOK || first.Header.Get("ETag") == tag {
		t.Fatalf("with its tag: %s, tag %s; want it renamed, with another tag", first.Body, first.Header.Get("ETag"))
	}
	servertest.Problem(t, rename(tag, "second").Problem, http.StatusPreconditionFailed, "precondition_failed")
	servertest.Problem(t, rename("17", "second").Problem, http.StatusBadRequest, "invalid_input")
	if last := rename("", "third"); last.StatusCode != http.StatusOK || last.Value.Name != "third" {
		t.Errorf("without a condition: %s", last.Body)
	}
	if last := rename("*", "fourth"); last.StatusCode != http.StatusOK {
		t.Errorf("with any state: %s", last.Body)
	}
	k := b.Key(a.ID, "")
	patched, err := servertest.Answered(b.API.UpdateKey(t.Context(), k.ID, &adminclient.UpdateKeyParams{IfMatch: &tag}, adminclient.KeyPatch{Name: new("x")}))
	servertest.Check(t, err)
	servertest.Problem(t, patched.Problem, http.StatusPreconditionFailed, "precondition_failed")
}

// Of several changes with the same If-Match, exactly one succeeds.
func TestOneOfConcurrentConditionalChangesSucceeds(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	read, err := servertest.Answered(b.API.GetAccount(t.Context(), a.ID))
	servertest.Check(t, err)
	params := &adminclient.UpdateAccountParams{IfMatch: new(read.Header.Get("ETag"))}
	const n = 8
	statuses := make([]int, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r, err := servertest.Answered(b.API.UpdateAccount(context.WithoutCancel(t.Context()), a.ID, params, adminclient.AccountPatch{Name: new("n")}))
			if err == nil {
				statuses[i] = r.StatusCode
			}
		})
	}
	all.Wait()
	count := map[int]int{}
	for _, status := range statuses {
		count[status]++
	}
	if count[http.StatusOK] != 1 || count[http.StatusPreconditionFailed] != n-1 {
		t.Errorf("got %v; want one 200, the rest 412", count)
	}
}

// With If-None-Match a PUT of the catalog only creates. Of several that create the same object, exactly one succeeds.
func TestOneOfConcurrentCreationsSucceeds(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.Apply(servertest.DemoCatalog)
	creations := map[string]func(ctx context.Context, match, none *string) (int, *adminclient.Problem, error){
		"provider": func(ctx context.Context, match, none *string) (int, *adminclient.Problem, error) {
			r, err := servertest.Answered(b.API.PutProvider(ctx, "new", &adminclient.PutProviderParams{IfMatch: match, IfNoneMatch: none},
				adminclient.CatalogProvider{ID: "new", BaseURL: "https://new.example"}))
			return status(r, err)
		},
		"credential": func(ctx context.Context, match, none *string) (int, *adminclient.Problem, error) {
			r, err := servertest.Answered(b.API.PutCredential(ctx, "sim", "new", &adminclient.PutCredentialParams{IfMatch: match, IfNoneMatch: none},
				adminclient.CatalogCredential{Name: "new", Secret: new("sk-new")}))
			return status(r, err)
		},
		"model": func(ctx context.Context, match, none *string) (int, *adminclient.Problem, error) {
			r, err := servertest.Answered(b.API.PutModel(ctx, "new", &adminclient.PutModelParams{IfMatch: match, IfNoneMatch: none},
				adminclient.CatalogModel{ID: "new", Type: "text", Price: adminclient.CatalogPrice{Input: new("1"), Output: new("2")}}))
			return status(r, err)
		},
		"route": func(ctx context.Context, match, none *string) (int, *adminclient.Problem, error) {
			r, err := servertest.Answered(b.API.PutRoute(ctx, "demo-chat", "new", &adminclient.PutRouteParams{IfMatch: match, IfNoneMatch: none},
				adminclient.CatalogRoute{ID: new("new"), Provider: "sim", UpstreamModel: "other", Formats: []adminclient.CatalogRouteFormats{"chat"}}))
			return status(r, err)
		},
	}
	for name, create := range creations {
		for _, wrong := range [][2]*string{{nil, new(`"17"`)}, {new("*"), new("*")}} {
			_, p, err := create(t.Context(), wrong[0], wrong[1])
			servertest.Check(t, err)
			servertest.Problem(t, p, http.StatusBadRequest, "invalid_input")
		}
		const n = 4
		var statuses [n]int
		var problems [n]*adminclient.Problem
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { statuses[i], problems[i], _ = create(context.WithoutCancel(t.Context()), nil, new("*")) })
		}
		all.Wait()
		created := 0
		for i, status := range statuses {
			if status == http.StatusCreated {
				created++
			} else {
				servertest.Problem(t, problems[i], http.StatusPreconditionFailed, "already_exists")
			}
		}
		if created != 1 {
			t.Errorf("%s: got %v; want one 201", name, statuses)
		}
	}
}

func status[T any](r *servertest.Answer[T], err error) (int, *adminclient.Problem, error) {
	if err != nil {
		return 0, nil, err
	}
	return r.StatusCode, r.Problem, nil
}

func TestCatalogAppliesOnlyIfMatch(t *testing.T) {
	t.Parallel()
	b := start(t)
	body := adminclient.CatalogDocument{Currency: "EUR"}
	first, err := servertest.Answered(b.API.ApplyCatalog(t.Context(), nil, body))
	servertest.Check(t, err)
	tag := first.Header.Get("ETag")
	read, err := servertest.Answered(b.API.GetCatalog(t.Context(), nil))
	servertest.Check(t, err)
	if got := read.Header.Get("ETag"); got != tag || tag == "" {
		t.Errorf("the catalog's tag is %s; want %s", got, tag)
	}
	body.Currency = "USD"
	params := &adminclient.ApplyCatalogParams{IfMatch: &tag}
	second, err := servertest.Answered(b.API.ApplyCatalog(t.Context(), params, body))
	servertest.Check(t, err)
	if second.StatusCode != http.StatusOK {
		t.Fatalf("with its tag: %s", second.Body)
	}
	third, err := servertest.Answered(b.API.ApplyCatalog(t.Context(), params, body))
	servertest.Check(t, err)
	servertest.Problem(t, third.Problem, http.StatusPreconditionFailed, "precondition_failed")
	params.DryRun = new(true)
	dry, err := servertest.Answered(b.API.ApplyCatalog(t.Context(), params, body))
	servertest.Check(t, err)
	servertest.Problem(t, dry.Problem, http.StatusPreconditionFailed, "precondition_failed")
}

// session adds a live proxy.
func (b *server) session(name string, applied, catalog int64) wire.SessionID {
	b.T.Helper()
	var id int64
	servertest.Check(b.T, b.DB.Pool().QueryRow(b.T.Context(), `
		insert into proxy_sessions (name, boot_id, window_ms, valid_until, applied_revision, catalog_revision)
		values ($1, $1, 20000, now() + interval '1 hour', $2, $3) returning id`, name, applied, catalog).Scan(&id))
	return wire.SessionID(id)
}

func TestWaitAppliedReportsPendingProxies(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	wait := adminclient.WaitForApplied
	update := func(timeout string) http.Header {
		r, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, &adminclient.UpdateAccountParams{Wait: &wait, Timeout: &timeout},
			adminclient.AccountPatch{Status: new(adminclient.AccountStatusSuspended)}))
		servertest.Check(t, err)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("update: %s", r.Body)
		}
		return r.Header
	}
	told := func(h http.Header, applied, by, pending string) {
		t.Helper()
		if h.Get("Applied") != applied || h.Get("Applied-By") != by || h.Get("Applied-Pending") != pending {
			t.Errorf("applied %q by %q, not by %q; want %q, %q, %q", h.Get("Applied"), h.Get("Applied-By"), h.Get("Applied-Pending"), applied, by, pending)
		}
	}
	told(update("5s"), "true", "", "")
	b.session("proxy-1", 0, 0)
	slow := b.session("proxy-2", 0, 0)
	b.Exec(`insert into proxy_sessions (name, boot_id, window_ms, valid_until, applied_revision) values ('expired', 'x', 20000, now() - interval '1 s', 0)`)
	// The repeated change changes nothing: it waits for earlier changes, and no proxy is known to have applied them.
	b.Announcer.Answer = propagation.Confirmation{Bound: time.Minute}
	told(update("1ms"), "false", "", "proxy-1, proxy-2")
	b.Announcer.Answer = propagation.Confirmation{Bound: time.Minute, Waiting: []session.ActiveSession{{Session: slow}}}
	r, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, &adminclient.UpdateAccountParams{Wait: &wait, Timeout: new("1ms")},
		adminclient.AccountPatch{Status: new(adminclient.AccountStatusActive)}))
	servertest.Check(t, err)
	told(r.Header, "false", "proxy-1", "proxy-2")
	// A proxy that was started again has two sessions until the first one ends. It has applied a change only if both have.
	b.session("proxy-2", 1_000_000, 0)
	told(update("1ms"), "false", "proxy-1", "proxy-2")
	b.Announcer.Answer = propagation.Confirmation{Effective: true}
	told(update("5s"), "true", "proxy-1, proxy-2", "")
	for _, wrong := range []string{"5", "2m", "61s", "-1s", "1.5s"} {
		r, err := servertest.Answered(b.API.UpdateAccount(t.Context(), a.ID, &adminclient.UpdateAccountParams{Wait: &wait, Timeout: &wrong}, adminclient.AccountPatch{}))
		servertest.Check(t, err)
		servertest.Problem(t, r.Problem, http.StatusBadRequest, "invalid_input")
	}
}

// A catalog change is applied when every live proxy has reported its revision.
func TestWaitAppliedWaitsForTheCatalog(t *testing.T) {
	t.Parallel()
	b := start(t)
	proxy := b.session("proxy-1", 0, 0)
	wait := adminclient.WaitForApplied
	apply := func(currency, timeout string) *servertest.Answer[adminclient.CatalogChanges] {
		r, err := servertest.Answered(b.API.ApplyCatalog(t.Context(), &adminclient.ApplyCatalogParams{Wait: &wait, Timeout: &timeout},
			adminclient.CatalogDocument{Currency: currency}))
		servertest.Check(t, err)
		return r
	}
	late := apply("EUR", "1ms")
	if late.Header.Get("Applied") != "false" {
		t.Errorf("no proxy has applied it, and the response reports it as applied: %v", late.Header)
	}
	b.Exec("update proxy_sessions set catalog_revision = $1 where id = $2", late.Value.Revision, proxy)
	same := apply("EUR", "5s")
	if same.Header.Get("Applied") != "true" || same.Header.Get("Applied-By") != "proxy-1" {
		t.Errorf("every proxy has applied it, and the response does not report it: %v", same.Header)
	}
}

func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	b := start(t)
	for _, query := range []string{"?limt=5", "?limit=5&limit=6", "?limit=%zz"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.URL+"/admin/v1/accounts"+query, nil)
		servertest.Check(t, err)
		r.Header.Set("Authorization", "Bearer "+servertest.BootstrapToken)
		answer, err := http.DefaultClient.Do(r)
		servertest.Check(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: got %d; want 400", query, answer.StatusCode)
		}
	}
}

// Every malformed parameter is reported.
func TestMalformedParameters(t *testing.T) {
	t.Parallel()
	b := start(t)
	for query, field := range map[string]string{"accounts?limit=many": "limit", "accounts?limit=0": "limit", "accounts?cursor=!": "cursor", "usage?from=yesterday": "from"} {
		answer, text := b.Send("Bearer "+servertest.BootstrapToken, http.MethodGet, "/admin/v1/"+query, "", "")
		var p adminclient.Problem
		servertest.Check(t, json.Unmarshal([]byte(text), &p))
		if answer.StatusCode != http.StatusBadRequest || len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%s: got %d %s; want %s refused", query, answer.StatusCode, text, field)
		}
	}
	answer, text := b.Send("Bearer "+servertest.BootstrapToken, http.MethodPost, "/admin/v1/accounts", "application/json", "{\"name\": \"a\",\n}")
	if answer.StatusCode != http.StatusBadRequest || !strings.Contains(text, "at byte 1") {
		t.Errorf("malformed JSON: got %d %s; want its position", answer.StatusCode, text)
	}
}
