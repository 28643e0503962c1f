package console_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
)

func TestEveryPageTellsWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, _ := w.account("Example")
	w.quarantine(a.ID)
	b := w.signedIn(bootstrapToken)
	_, page := b.get("/console/accounts")
	for _, want := range []string{"No proxy is registered", "A usage event waits in quarantine", "2 to look at"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	_, token := w.token(adminclient.ScopeRead)
	if _, page := w.signedIn(token).get("/console/accounts"); strings.Contains(page, "quarantine") || !strings.Contains(page, "read only") {
		t.Errorf("a person who may not observe: %s", page)
	}
}

// sql runs statements.
func (w *world) sql(statements ...string) {
	w.t.Helper()
	for _, s := range statements {
		_, err := w.pool.Exec(w.t.Context(), s)
		check(w.t, err)
	}
}

// running is a session of a proxy that has applied every change.
const running = `insert into proxy_sessions (name, boot_id, build, window_ms, valid_until, applied_revision, catalog_revision, spool_capacity)
	values ('proxy-1', 'b-1', 'v1', 20000, now() + interval '1 hour', 1000, 1000, 1000)`

func TestEachBannerIsAboveEveryPage(t *testing.T) {
	t.Parallel()
	const lost = "update cluster_state set cluster_epoch = cluster_epoch + 1, lost_at = now()"
	sql := func(statement string) func(*world) { return func(w *world) { w.sql(statement) } }
	for name, c := range map[string]struct {
		do   func(*world)
		kind string
		want []string
	}{
		"a check of the money failed": {
			sql("insert into ledger_checks (id, kind, state, actor, ok, ended_at) values (gen_random_uuid(), 'recent', 'done', 'ledger', false, now())"),
			"bad",
			[]string{"The check of the money found a difference (recent)", `href="/console/money/checks/`},
		},
		"commits are lost": {
			sql(lost), "bad", []string{"Postgres was found to have lost commits. New requests get 503", `href="/console/diagnosis"`},
		},
		"commits were lost": {
			sql(lost + ", recovered_epoch = cluster_epoch + 1"), "warn", []string{"Postgres was found to have lost commits. Changes from shortly before are gone", `href="/console/audit?to=20`},
		},
		"something is closed": {
			func(w *world) {
				_, err := w.api.MaintainModel(t.Context(), "example-small", nil, adminclient.MaintenanceSet{})
				check(t, err)
			},
			"warn",
			[]string{"Closed for maintenance: model example-small", `href="/console/maintenance"`},
		},
		"a proxy is behind": {
			sql("update proxy_sessions set applied_revision = -1"), "warn", []string{"1 of 1 proxies have not applied all changes yet", `href="/console/proxies"`},
		},
	} {
		w := setup(t)
		w.catalog()
		w.sql(running)
		c.do(w)
		b := w.signedIn(bootstrapToken)
		for _, path := range []string{"/console/", "/console/accounts", "/console/audit", "/console/parts"} {
			_, page := b.get(path)
			_, banners, _ := strings.Cut(page, `<div id="banners">`)
			banners, _, _ = strings.Cut(banners, "</div>")
			for _, want := range append(c.want, `<p class="banner `+c.kind+`" role="alert">`) {
				if !strings.Contains(banners, want) || strings.Count(banners, "<p ") != 1 {
					t.Errorf("%s: the banners of %s are %q; want one with %s", name, path, banners, want)
				}
			}
		}
	}
}

func TestNoBannerIsShownWhileAllIsWell(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.catalog()
	w.sql(running, "update cluster_state set lost_at = now() - interval '25 hours'") // long ago
	if _, page := w.signedIn(bootstrapToken).get("/console/accounts"); !strings.Contains(page, `<div id="banners"></div>`) || !strings.Contains(page, "all well") {
		t.Errorf("got %s; want no banner", page)
	}
}

func TestReadOnlySessionIsToldAboveEveryPage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, scope := range []adminclient.Scope{adminclient.ScopeObserve, adminclient.ScopeRead} {
		_, token := w.token(scope)
		want := `<p class="banner info" role="status">This session is read only: the scope ` + string(scope) + ` changes nothing.`
		if _, page := w.signedIn(token).get("/console/accounts"); !strings.Contains(page, want) {
			t.Errorf("%s: got %s", scope, page)
		}
	}
	for _, scope := range []adminclient.Scope{adminclient.ScopeOperator, adminclient.ScopeCredits} {
		_, token := w.token(scope)
		if _, page := w.signedIn(token).get("/console/signed-in"); strings.Contains(page, "This session is read only") {
			t.Errorf("%s is told to be read only: %s", scope, page)
		}
	}
}

func TestSearchFindsObjectsAndPages(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, k := w.account("Example Ltd")
	b := w.signedIn(bootstrapToken)
	for query, want := range map[string]string{"exam": `href="/console/accounts/` + a.ID + `"`, "refus": `href="/console/refusals"`, "req_zz": "Nothing matches", "nothing": "Nothing matches"} {
		if answer, page := b.post("/console/search", "q", query); answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%q: got %d without %q: %s", query, answer.StatusCode, want, page)
		}
	}
	if answer, page := b.post("/console/search", "q", k.Secret); answer.StatusCode != http.StatusOK || !strings.Contains(page, `href="/console/keys/`+k.ID+`"`) || strings.Contains(page, k.Secret) {
		t.Errorf("the text of a key: got %d %s; want its page without the text", answer.StatusCode, page)
	}
	for _, id := range []string{a.ID, k.ID} {
		if answer, _ := b.post("/console/search", "q", " "+id+" "); !strings.HasSuffix(answer.Header.Get("Location"), "/"+id) {
			t.Errorf("%s leads to %q", id, answer.Header.Get("Location"))
		}
	}
}
