package console_test

import (
	"fmt"
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
)

// The dot of the header is the list of the overview: its colour is that of the worst entry, its number that of all. Banners are
// the failures of it.
func TestDotBannersAndListAreOne(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.catalog()
	a, _ := w.account("Example")
	w.quarantine(a.ID)
	w.sql(running, "update provider_credentials set refused_at = now(), refused_reason = 'key_rejected'")
	_, err := w.api.MaintainModel(t.Context(), "example-small", nil, adminclient.MaintenanceSet{Until: new(time.Now().Add(time.Hour))})
	check(t, err)

	b := w.signedIn(bootstrapToken)
	needs := b.needs()
	failures := 0
	for _, n := range needs {
		if n.kind == "bad" {
			failures++
		}
		if strings.Contains(n.text, "maintenance") {
			t.Errorf("a maintenance that ends by itself needs somebody: %+v", n)
		}
	}
	if failures == 0 || failures == len(needs) {
		t.Fatalf("got %+v; want failures and warnings", needs)
	}
	for _, path := range []string{"/console/", "/console/accounts"} {
		_, page := b.get(path)
		_, banners, _ := strings.Cut(page, `<div id="banners">`)
		banners, _, _ = strings.Cut(banners, "</div>")
		if want := fmt.Sprintf(`<span class="badge bad">%d to look at</span>`, len(needs)); !strings.Contains(page, want) {
			t.Errorf("the header of %s has no %s", path, want)
		}
		shown, further := min(failures, 3), max(failures-3, 0)
		if strings.Count(banners, `<p class="banner bad"`) != shown+min(further, 1) || strings.Contains(banners, "quarantine") ||
			further > 0 && !strings.Contains(banners, fmt.Sprintf("Further failures: %d.", further)) {
			t.Errorf("the banners of %s are %s; want the failures of %+v", path, banners, needs)
		}
	}

	_, token := w.token(adminclient.ScopeRead)
	if _, page := w.signedIn(token).get("/console/accounts"); strings.Contains(page, "to look at") || !strings.Contains(page, "read only") {
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

func TestWhatNeedsSomebodyIsOnEveryPage(t *testing.T) {
	t.Parallel()
	const lost = "update cluster_state set cluster_epoch = cluster_epoch + 1, lost_at = now()"
	sql := func(statement string) func(*world) { return func(w *world) { w.sql(statement) } }
	for name, c := range map[string]struct {
		do         func(*world)
		kind, text string
		link       string
	}{
		"a check of the money failed": {
			sql("insert into ledger_checks (id, kind, state, actor, ok, ended_at) values (gen_random_uuid(), 'recent', 'done', 'ledger', false, now())"),
			"bad", `The ledger check "recent" found a difference.`, "/console/money/checks/",
		},
		"commits are lost": {sql(lost), "bad", "a loss of commits was declared", "/console/diagnosis"},
		"commits were lost": {
			sql(lost + ", recovered_epoch = cluster_epoch + 1"), "warn", "Postgres was found to have lost commits.", "/console/audit?to=20",
		},
		"something is closed without an end": {
			func(w *world) {
				_, err := w.api.MaintainModel(t.Context(), "example-small", nil, adminclient.MaintenanceSet{})
				check(t, err)
			},
			"warn", "Closed for maintenance without an end: model example-small.", "/console/maintenance",
		},
		"a proxy is behind": {
			sql("update proxy_sessions set applied_revision = -1"), "warn", "proxy-1: keys and accounts at revision -1", "/console/proxies",
		},
	} {
		w := setup(t)
		w.catalog()
		w.sql(running)
		c.do(w)
		b := w.signedIn(bootstrapToken)
		found := slices.ContainsFunc(b.needs(), func(n need) bool {
			return n.kind == c.kind && strings.Contains(n.text, c.text) && strings.HasPrefix(n.links[0], c.link)
		})
		if !found {
			t.Errorf("%s: %+v is not on the list %+v", name, c, b.needs())
		}
		for _, path := range []string{"/console/", "/console/accounts", "/console/audit", "/console/parts"} {
			_, page := b.get(path)
			_, banners, _ := strings.Cut(page, `<div id="banners">`)
			banners, _, _ = strings.Cut(banners, "</div>")
			banners = html.UnescapeString(banners)
			if strings.Contains(banners, c.text) != (c.kind == "bad") || !strings.Contains(page, " to look at</span>") {
				t.Errorf("%s: the banners of %s are %q", name, path, banners)
			}
		}
	}
}

func TestLongAgoLossNeedsNobody(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.catalog()
	w.sql(running, "update cluster_state set lost_at = now() - interval '25 hours'")
	for _, n := range w.signedIn(bootstrapToken).needs() {
		if strings.Contains(n.text, "lost commits") {
			t.Errorf("got %+v", n)
		}
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
	for query, want := range map[string]string{"exam": `href="/console/accounts/` + a.ID + `"`, "refus": `href="/console/refusals"`, "suspend": `href="/console/accounts"`, "price": `href="/console/models"`, "ledger": "Book money", "req_zz": "Nothing matches", "nothing": "Nothing matches"} {
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
