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
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

// The dot of the header is the list of the overview: its colour is that of the worst entry, its number that of all. Banners are
// the failures of it.
func TestDotBannersAndListAreOne(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	a, _ := w.Customer("Example")
	w.Quarantined(a.ID)
	w.SQL(consoletest.Running, "update provider_credentials set refused_at = now(), refused_reason = 'key_rejected'")
	_, err := w.API.MaintainModel(t.Context(), "example-small", nil, adminclient.MaintenanceSet{Until: new(time.Now().Add(time.Hour))})
	servertest.Check(t, err)

	b := w.SignedIn(servertest.BootstrapToken)
	needs := needs(b)
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
		_, page := b.Get(path)
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

	_, token := w.NewToken(adminclient.ScopeRead)
	if _, page := w.SignedIn(token).Get("/console/accounts"); strings.Contains(page, "to look at") || !strings.Contains(page, "read only") {
		t.Errorf("a person who may not observe: %s", page)
	}
}

func TestWhatNeedsSomebodyIsOnEveryPage(t *testing.T) {
	t.Parallel()
	const lost = "update cluster_state set cluster_epoch = cluster_epoch + 1, lost_at = now()"
	sql := func(statement string) func(*consoletest.World) {
		return func(w *consoletest.World) { w.SQL(statement) }
	}
	for name, c := range map[string]struct {
		do         func(*consoletest.World)
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
			func(w *consoletest.World) {
				_, err := w.API.MaintainModel(t.Context(), "example-small", nil, adminclient.MaintenanceSet{})
				servertest.Check(t, err)
			},
			"warn", "Closed for maintenance without an end: model example-small.", "/console/maintenance",
		},
		"a proxy is behind": {
			sql("update proxy_sessions set applied_revision = -1"), "warn", "proxy-1: keys and accounts at revision -1", "/console/proxies",
		},
	} {
		w := consoletest.Start(t)
		w.SmallCatalog()
		w.OneProxy()
		c.do(w)
		b := w.SignedIn(servertest.BootstrapToken)
		found := slices.ContainsFunc(needs(b), func(n need) bool {
			return n.kind == c.kind && strings.Contains(n.text, c.text) && strings.HasPrefix(n.links[0], c.link)
		})
		if !found {
			t.Errorf("%s: %+v is not on the list %+v", name, c, needs(b))
		}
		for _, path := range []string{"/console/", "/console/accounts", "/console/audit", "/console/parts"} {
			_, page := b.Get(path)
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
	w := consoletest.Start(t)
	w.SmallCatalog()
	w.SQL(consoletest.Running, "update cluster_state set lost_at = now() - interval '25 hours'")
	for _, n := range needs(w.SignedIn(servertest.BootstrapToken)) {
		if strings.Contains(n.text, "lost commits") {
			t.Errorf("got %+v", n)
		}
	}
}

func TestReadOnlySessionIsToldAboveEveryPage(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	for _, scope := range []adminclient.Scope{adminclient.ScopeObserve, adminclient.ScopeRead} {
		_, token := w.NewToken(scope)
		want := `<p class="banner info" role="status">This session is read only: the scope ` + string(scope) + ` changes nothing.`
		if _, page := w.SignedIn(token).Get("/console/accounts"); !strings.Contains(page, want) {
			t.Errorf("%s: got %s", scope, page)
		}
	}
	for _, scope := range []adminclient.Scope{adminclient.ScopeOperator, adminclient.ScopeCredits} {
		_, token := w.NewToken(scope)
		if _, page := w.SignedIn(token).Get("/console/signed-in"); strings.Contains(page, "This session is read only") {
			t.Errorf("%s is told to be read only: %s", scope, page)
		}
	}
}

func TestSearchFindsObjectsAndPages(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example Ltd")
	b := w.SignedIn(servertest.BootstrapToken)
	for query, want := range map[string]string{"exam": `href="/console/accounts/` + a.ID + `"`, "refus": `href="/console/refusals"`, "suspend": `href="/console/accounts"`, "price": `href="/console/models"`, "ledger": "Book money", "req_zz": "Nothing matches", "nothing": "Nothing matches"} {
		if answer, page := b.Post("/console/search", "q", query); answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%q: got %d without %q: %s", query, answer.StatusCode, want, page)
		}
	}
	if answer, page := b.Post("/console/search", "q", k.Secret); answer.StatusCode != http.StatusOK || !strings.Contains(page, `href="/console/keys/`+k.ID+`"`) || strings.Contains(page, k.Secret) {
		t.Errorf("the text of a key: got %d %s; want its page without the text", answer.StatusCode, page)
	}
	for _, id := range []string{a.ID, k.ID} {
		if answer, _ := b.Post("/console/search", "q", " "+id+" "); !strings.HasSuffix(answer.Header.Get("Location"), "/"+id) {
			t.Errorf("%s leads to %q", id, answer.Header.Get("Location"))
		}
	}
}
