package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// clipped names the boxes whose content is wider than they are, and the tables that leave their card. A chart's table, which
// people open, may be scrolled sideways.
const clipped = `[...document.querySelectorAll("main .card, main .scroll")]
	.filter((e) => e.scrollWidth > e.clientWidth + 1)
	.concat([...document.querySelectorAll("main .card table")].filter((e) => e.getBoundingClientRect().right > e.closest(".card").getBoundingClientRect().right))
	.filter((e) => !e.closest("details"))
	.map((e) => (e.className || e.tagName) + ": " + e.textContent.trim().replace(/\s+/g, " ").slice(0, 60))`

// The demo has long names: models of providers with options, and references of payments with the account's id.
func TestTablesAreNotCutOff(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	b.signIn(filled(t).AdminToken())
	b.visit("/console/accounts")
	account := eval[string](b, `[...document.querySelectorAll('main a[href*="/accounts/acc_"]')].find((a) => a.textContent.includes("Northwind")).pathname`)
	b.run(chromedp.EmulateViewport(1280, 900))
	for _, path := range []string{"/console/models/demo-large", "/console/providers/sim", account + "/statement", account + "/ledger", "/console/usage"} {
		b.visit(path)
		for _, box := range eval[[]string](b, clipped) {
			t.Errorf("%s is cut off on the right: %s", path, box)
		}
	}
}

// tooWide names what reaches beyond the screen. What can be scrolled sideways by itself may.
const tooWide = `(() => {
	const width = document.documentElement.clientWidth;
	if (document.scrollingElement.scrollWidth <= width + 1) return [];
	const scrolls = (e) => e && (["auto", "scroll"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
	const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > width + 1 && !scrolls(e.parentElement));
	const inner = wide.filter((e) => ![...e.children].some((c) => wide.includes(c)));
	return [document.scrollingElement.scrollWidth + " px wide"].concat(inner.slice(0, 5).map((e) => e.tagName + "." + e.className + ": " + e.textContent.trim().slice(0, 60)));
})()`

// Names have up to 200 characters, and nobody has to put spaces between them.
func TestLongNamesFitEveryScreen(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	r := filled(t)
	long := strings.Repeat("unbroken", 25)[:200]
	account, err := r.Admin.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: long, ExternalID: &long})
	if err != nil {
		t.Fatal(err)
	}
	id := account.Value.ID
	credit, err := r.Admin.CreateCredit(t.Context(), id, nil, adminclient.CreditCreate{Amount: "99999999.123456789", Kind: adminclient.CreditKindPayment, Reference: long})
	if err != nil {
		t.Fatalf("%+v: %v", credit, err)
	}
	key, err := r.Admin.CreateKey(t.Context(), id, nil, adminclient.KeyCreate{Name: long, ExternalID: &long, SpendLimit: new("9999999.987654321")})
	if err != nil {
		t.Fatal(err)
	}
	name := long[:100]
	model := r.Model(t, rig.Model{ID: "m-" + name, DisplayName: long, OwnedBy: long})
	answer := ask(t, r, key.Value.Secret, model)
	if answer.Status != http.StatusOK {
		t.Fatalf("got %s", answer)
	}
	u := r.AwaitUsage(t, answer.RequestID())
	if _, err := r.Admin.CreateWebhook(t.Context(), nil, adminclient.WebhookCreate{URL: "https://receiver.example/" + long, Description: &long}); err != nil {
		t.Fatal(err)
	}
	b.signIn(r.AdminToken())
	paths := []string{
		"/console/", "/console/accounts?query=unbroken", "/console/requests?account_id=" + id, "/console/requests/" + u.RequestID, "/console/usage", "/console/usage?by=account", "/console/usage?by=model",
		"/console/models", "/console/models/" + model, "/console/models/" + model + "/edit", "/console/models/" + model + "/price", "/console/models/" + model + "/delete", "/console/routes",
		"/console/keys/" + key.Value.ID, "/console/keys/" + key.Value.ID + "/edit", "/console/keys/" + key.Value.ID + "/revoke", "/console/keys/" + key.Value.ID + "/reveal",
		"/console/refusals", "/console/webhooks", "/console/webhooks/new", "/console/audit", "/console/events", "/console/connect?key_id=" + key.Value.ID, "/console/explain?account_id=" + id, "/console/maintenance/close?scope=model&id=" + model,
		"/console/live?account_id=" + id,
	}
	for _, tab := range []string{"", "/keys", "/usage", "/ledger", "/statement", "/alerts", "/models", "/money", "/changes", "/edit", "/book", "/book?kind=correction&request_id=" + u.RequestID, "/suspend"} {
		paths = append(paths, "/console/accounts/"+id+tab)
	}
	for _, path := range paths {
		b.run(chromedp.EmulateViewport(1280, 900))
		if status := b.visit(path); status != http.StatusOK {
			t.Errorf("%s: got %d", path, status)
		}
		for _, box := range eval[[]string](b, clipped) { // on small screens some tables are scrolled sideways
			t.Errorf("%s is cut off: %s", path, box)
		}
		for _, width := range []int64{1280, narrow} {
			b.run(chromedp.EmulateViewport(width, 900))
			b.awaitCharts()
			for _, found := range eval[[]string](b, tooWide) {
				t.Errorf("%s at %d px: %s", path, width, found)
			}
		}
	}
}
