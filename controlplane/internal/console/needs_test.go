package console_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/ident"
	"modelgateway/shared/pulse"
)

var (
	needItem = regexp.MustCompile(`(?s)<li class="(bad|warn)">(.*?)</li>`)
	needText = regexp.MustCompile(`<b>(.*?)</b>`)
	anyLink  = regexp.MustCompile(`href="([^"]*)"`)
)

// need is an entry of the list "Needs you".
type need struct {
	kind, text string
	links      []string
}

// needs returns the list "Needs you" of the overview.
func needs(b *consoletest.Browser) []need {
	b.World.T.Helper()
	answer, page := b.Get("/console/?charts=none")
	if answer.StatusCode != http.StatusOK {
		b.World.T.Fatalf("got %d %s", answer.StatusCode, page)
	}
	var all []need
	for _, item := range needItem.FindAllStringSubmatch(page, -1) {
		n := need{kind: item[1]}
		if text := needText.FindStringSubmatch(item[2]); text != nil {
			n.text = html.UnescapeString(text[1])
		}
		for _, link := range anyLink.FindAllStringSubmatch(item[2], -1) {
			n.links = append(n.links, html.UnescapeString(link[1]))
		}
		all = append(all, n)
	}
	return all
}

// video inserts an open video job of an age.
func video(w *consoletest.World, k *adminclient.IssuedKey, age, upstream string) {
	w.T.Helper()
	id := ident.New()
	record := fmt.Sprintf(`{"id": %q, "account_id": %q, "key_id": %q, "request_id": %q, "upstream_id": %q, "status": "in_progress", "model": "boat"}`,
		ident.Video.Format(id), k.AccountID, k.ID, ident.Request.New(), upstream)
	_, err := w.DB.Pool().Exec(w.T.Context(), `insert into video_jobs (id, account_id, key_id, request_id, status, expected_cost, record, created_at)
		select $1, account_id, id, gen_random_uuid(), 'in_progress', 0, $2, now() - $3::interval from api_keys limit 1`, id, record, age)
	servertest.Check(w.T, err)
}

func TestEverythingThatNeedsSomebodyHasOneLinkThatSettlesIt(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	a, k := w.Customer("Overdrawn Ltd")
	_, err := w.API.CreateCredit(t.Context(), a.ID, nil, adminclient.CreditCreate{
		Amount: "-26", Kind: adminclient.CreditKindCorrection, Reference: "r1", Reason: new("a test"), AllowNegativeBalance: new(true),
	})
	servertest.Check(t, err)
	w.Quarantined(a.ID)
	video(w, k, "3 hours", "up_1")
	video(w, k, "10 minutes", "")
	failing, disabled, fine := w.Webhook(), w.Webhook(), w.Webhook()
	run := "ab" + strings.Repeat("0", 30)
	w.SQL(
		consoletest.Running,
		`insert into ledger_checks (id, kind, state, actor, ok, ended_at) values ('`+run+`', 'receipts', 'done', 'somebody', false, now())`,
		`update provider_credentials set refused_at = now() - interval '1 hour', refused_reason = 'quota_exhausted' where name = 'main'`,
		`update proxy_sessions set refused_credentials = (select jsonb_build_array(jsonb_build_object('credential', id, 'reason', 'quota_exhausted')) from provider_credentials where name = 'main')`,
	)
	for id, change := range map[string]string{failing.ID: "enabled = true, failing_since = now()", disabled.ID: "disabled_reason = 'it has failed for three days'", fine.ID: "enabled = true"} {
		u, err := ident.Endpoint.Parse(id)
		servertest.Check(t, err)
		_, err = w.DB.Pool().Exec(t.Context(), "update webhook_endpoints set "+change+" where id = $1", u)
		servertest.Check(t, err)
	}
	w.Live.Receive(&pulse.Report{V: pulse.Version, Proxy: "proxy-1", Process: "p1", Breakers: []pulse.Breaker{{Route: "small-main", State: pulse.Open, SinceMS: 90_000, Class: "unavailable"}}})
	w.Live.Receive(&pulse.Report{V: pulse.Version, Proxy: "proxy-2", Process: "p2"})
	b := w.SignedIn(servertest.BootstrapToken)
	found := needs(b)
	for _, want := range []need{
		{"bad", `The ledger check "receipts" found a difference.`, []string{"/console/money/checks/"}},
		{"warn", "A usage event is in quarantine.", []string{"/console/quarantine"}},
		{"warn", `Provider acme refuses the credential "main" at 1 of 1 proxies: quota exhausted.`, []string{"/console/providers/acme"}},
		{"warn", "1 of 2 proxies do not call the route of example-small to acme.", []string{"/console/routes"}},
		{"warn", "A video job is stuck.", []string{"/console/video-jobs?state=stuck"}},
		{"warn", "The result of the creation of a video job is unknown.", []string{"/console/video-jobs?state=unknown"}},
		{"warn", "The webhook https://receiver.example/events fails.", []string{"/console/webhooks/" + failing.ID}},
		{"warn", "The webhook https://receiver.example/events was disabled.", []string{"/console/webhooks/" + disabled.ID}},
		{"warn", "The balance of an account is negative: -0.999999999 in all.", []string{"/console/accounts?sort=balance"}},
	} {
		count := 0
		for _, n := range found {
			if n.text != want.text {
				continue
			}
			count++
			if n.kind != want.kind || len(n.links) != 1 || !strings.HasPrefix(n.links[0], want.links[0]) {
				t.Errorf("got %+v; want %+v", n, want)
			}
		}
		if count != 1 {
			t.Errorf("%q is %d times on the list %+v", want.text, count, found)
		}
	}
	for _, n := range found {
		for _, link := range n.links {
			if answer, page := b.Get(link); answer.StatusCode != http.StatusOK {
				t.Errorf("%q leads to %s: got %d %s", n.text, link, answer.StatusCode, page)
			}
		}
	}
}

// What the diagnosis finds leads to the page of the object, not to the diagnosis.
func TestFindingsOfTheDiagnosisLeadToWhatSettlesThem(t *testing.T) {
	t.Parallel()
	sql := func(statement string) func(*consoletest.World) {
		return func(w *consoletest.World) { w.SQL(statement) }
	}
	for name, c := range map[string]struct {
		do         func(*consoletest.World)
		text, link string
	}{
		"a provider without a credential": {
			sql("update provider_credentials set refused_at = now(), refused_reason = 'key_rejected'"),
			"Provider acme: the provider refuses every enabled credential", "/console/providers/acme",
		},
		"a model without a route": {
			func(w *consoletest.World) {
				_, err := w.API.UpdateRoute(t.Context(), "example-small", "small-main", nil, adminclient.CatalogRoutePatch{Enabled: new(false)})
				servertest.Check(t, err)
			},
			"example-small: the model has no enabled route to an enabled provider with a usable credential", "/console/models/example-small",
		},
		"a bill that differs": {
			sql(`insert into provider_bills (id, sha256, name, provider, format, credential, time_zone, unit, currency, first_day, last_day, ends_at,
				lines, with_request, billed, other, step, imported_at, imported_by, compared_at, open_amount, compared_billed)
				values (gen_random_uuid(), '', '', 'acme', 'csv', '', 'UTC', 'money', 'USD', '2026-01-01', '2026-01-31', now(), 1, 0, 0, 0, 0,
				now() - interval '49 hours', '', now(), 2, 100)`),
			"bills of providers with more than 0.1 % open after 48 hours: 1", "/console/bills",
		},
		"no proxy": {sql("delete from proxy_sessions"), "0 live proxies", "/console/proxies"},
		"a loss of commits": {
			sql("update cluster_state set cluster_epoch = cluster_epoch + 1, lost_at = now()"), "a loss of commits was declared", "/console/diagnosis",
		},
	} {
		w := consoletest.Start(t)
		w.SmallCatalog()
		w.OneProxy()
		c.do(w)
		found := needs(w.SignedIn(servertest.BootstrapToken))
		count := 0
		for _, n := range found {
			if strings.Contains(n.text, c.text) {
				count++
				if len(n.links) != 1 || n.links[0] != c.link {
					t.Errorf("%s: got %+v; want the link %s", name, n, c.link)
				}
			}
		}
		if count != 1 {
			t.Errorf("%s: %q is %d times on the list %+v", name, c.text, count, found)
		}
	}
}

func TestProviderThatRefusesEveryCredentialIsListedOnce(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	w.SQL(
		consoletest.Running,
		"update provider_credentials set refused_at = now(), refused_reason = 'key_rejected'",
		`update proxy_sessions set refused_credentials = (select jsonb_agg(jsonb_build_object('credential', id, 'reason', 'key_rejected')) from provider_credentials)`,
	)
	var about []need
	for _, n := range needs(w.SignedIn(servertest.BootstrapToken)) {
		if strings.Contains(n.text, "acme") {
			about = append(about, n)
		}
	}
	if len(about) != 1 || about[0].kind != "bad" {
		t.Errorf("got %+v; want only the failure", about)
	}
}

func TestNothingNeedsSomebodyThatIsWell(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	_, k := w.Customer("Example Ltd")
	video(w, k, "1 minute", "up_1")
	w.SQL(consoletest.Running, "insert into ledger_checks (id, kind, state, actor, ok, ended_at) values (gen_random_uuid(), 'recent', 'done', 'ledger', true, now())")
	w.Live.Receive(&pulse.Report{V: pulse.Version, Proxy: "proxy-1", Process: "p1", Breakers: []pulse.Breaker{{Route: "small-main", State: pulse.Closed, Failures: 1}}})
	for _, n := range needs(w.SignedIn(servertest.BootstrapToken)) {
		for _, wrong := range []string{"check", "quarantine", "credential", "route of", "video", "webhook", "balance"} {
			if strings.Contains(n.text, wrong) {
				t.Errorf("the list has %+v", n)
			}
		}
	}
}
