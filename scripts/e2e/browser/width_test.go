package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// clipped names the boxes whose content is wider than they are, and the tables that leave their card. A chart's table, which
// people open, may be scrolled sideways.
const clipped = `[...document.querySelectorAll("main .card, main .scroll")]
	.filter((e) => e.scrollWidth > e.clientWidth + 1 && !e.closest("details"))
	.concat([...document.querySelectorAll("main .card table")].filter((e) => e.getBoundingClientRect().right > e.closest(".card").getBoundingClientRect().right))
	.map((e) => (e.className || e.tagName) + ": " + e.textContent.trim().replace(/\s+/g, " ").slice(0, 60))`

// The demo has long names: models of providers with options, and references of top-ups with the account's id.
func TestTablesAreNotCutOff(t *testing.T) {
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
