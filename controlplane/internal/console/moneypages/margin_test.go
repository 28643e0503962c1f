package moneypages_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/ident"
)

// From the report of yesterday a person comes to the worst route, to its requests, and to what the calls of one of them cost.
func TestPersonFindsWhereMoneyWasLost(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	account, err := ident.Account.Parse(a.ID)
	servertest.Check(t, err)
	key, err := ident.Key.Parse(k.ID)
	servertest.Check(t, err)
	_, err = w.DB.Pool().Exec(t.Context(), `
		insert into usage_records (request_id, session_id, seq, account_id, key_id, model, format, provider, route, credential, status, started_at,
			finished_at, usage, rule, price_version, cost, reservation, provider_cost, provider_price_version, attempts)
		select (left(uuid_floor(at)::text, 14) || '7' || lpad(to_hex(g), 3, '0') || '-8000-' || lpad(to_hex(g), 12, '0'))::uuid, 1, g, $1, $2,
			'example-small', 'chat', 'prv_1', case g when 1 then 'rte_bad' else 'rte_good' end, 'main', 'failed', at, at as finished_at, '{}', 'none', 1,
			0, 0, case g when 1 then 3000000000 else 1000000 end, 7,
			case g when 1 then '[{"route": "rte_other", "provider": "prv_2", "credential_name": "spare", "class": "truncated", "usage": {"input": 3}, "estimated": true, "provider_cost": 500000000, "provider_price_version": 8}, {"route": "rte_bad", "credential_name": "main"}]'::jsonb end
		from generate_series(1, 3) g, lateral (select $3::timestamptz + g * interval '10 minutes' as at) as moments`, account, key, day)
	servertest.Check(t, err)

	b := w.SignedIn(servertest.BootstrapToken)
	link := func(page, pattern string) string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("no %s in %s", pattern, page)
		}
		return html.UnescapeString(found[1])
	}
	open := func(path string) string {
		t.Helper()
		answer, page := b.Get(path)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %d %s", path, answer.StatusCode, page)
		}
		return page
	}
	page := open(link(open("/console/margin"), `href="([^"]*)">Yesterday, by route`))
	if bad, good := strings.Index(page, "rte_bad"), strings.Index(page, "rte_good"); bad < 0 || good < bad || !strings.Contains(page, "gwctl margin get --by route") {
		t.Errorf("the worst route is not the first: %s", page)
	}
	page = open(link(page, `<td data-label="Show"><a href="([^"]*route=rte_bad[^"]*)">show`))
	page = open(link(page, `href="(/console/requests/req_[0-9a-f]+)"`))
	for _, want := range []string{"3.00", "by version 7", "0.50", "spare", "-3.50", "estimated"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the request has no %q: %s", want, page)
		}
	}
	// The route that only failed has the request among its own, marked, with what the call has spent.
	page = open(link(open("/console/margin"), `<td data-label="Show"><a href="([^"]*route=rte_other[^"]*)">show`))
	for _, want := range []string{"1 call failed", "3.00", "0.50", `<th class="number" title="What providers charge`} {
		if !strings.Contains(page, want) {
			t.Errorf("the requests of the route that failed have no %q: %s", want, page)
		}
	}
	if _, page := b.Get("/console/requests"); !strings.Contains(page, "1 call failed") || strings.Contains(page, "What providers charge") {
		t.Errorf("all requests: %s", page)
	}
	if page := open("/console/margin?by=account"); !strings.Contains(page, ">Example</a>") || !strings.Contains(page, `href="/console/accounts/`+a.ID+`"`) {
		t.Errorf("by account: %s; want the name, and a link to the account", page)
	}
	if page := open("/console/margin?by=key"); !strings.Contains(page, ">"+k.Name+"</a>") || !strings.Contains(page, `href="/console/keys/`+k.ID+`"`) {
		t.Errorf("by key: %s; want the name, and a link to the key", page)
	}
	w.SQL(
		"insert into providers (id, name, spec, revision) values ('prv_1', 'Acme', '{}', 1)",
		"insert into models (id, enabled, type, public, spec, revision) values ('example-small', true, 'text', true, '{}', 1)",
		"insert into routes (id, model_id, provider_id, spec) values ('rte_bad', 'example-small', 'prv_1', '{}')",
	)
	for by, want := range map[string]string{
		"route": `>example-small, Acme</a> <small><a href="/console/models/example-small">`, "provider": `>Acme</a> <small><a href="/console/providers/prv_1">`,
		"credential": `>main, Acme</a> <small><a href="/console/providers/prv_1">`,
	} {
		if page := open("/console/margin?by=" + by); !strings.Contains(page, want) {
			t.Errorf("by %s: %s; want %s", by, page, want)
		}
	}
	if answer, file := b.Get("/console/margin/export?by=credential"); answer.StatusCode != http.StatusOK || !strings.Contains(file, "credential,spare,,,prv_2") {
		t.Errorf("the export: got %d %s", answer.StatusCode, file)
	}

	_, token := w.NewToken(adminclient.ScopeCabinet)
	portal := w.SignedIn(token)
	if answer, page := portal.Get("/console/margin"); answer.StatusCode != http.StatusForbidden || strings.Contains(page, "/console/margin") {
		t.Errorf("without the scope operator: got %d %s", answer.StatusCode, page)
	}
}
