package browser

import (
	"testing"

	"github.com/chromedp/chromedp"

	"modelgateway/scripts/e2e/rig"
)

// All entries of the navigation are on a small laptop's screen, as nothing shows that there are more below.
func TestNavigationFitsASmallScreen(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	b.signIn(filled(t).AdminToken())
	b.run(chromedp.EmulateViewport(1280, 720))
	b.visit("/console/")
	if below := eval[[]string](b, `[...document.querySelectorAll(".sidebar a")].filter((a) => a.getBoundingClientRect().bottom > innerHeight).map((a) => a.textContent)`); len(below) > 0 {
		t.Errorf("below the edge of the screen: %q", below)
	}
}

// The amount is the most important number of a receipt, and no word of a list is broken inside where there is room.
func TestReceiptShowsItsAmountsOnAPhone(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	answer := ask(t, r, account.Key, "demo-all")
	u := r.AwaitUsage(t, answer.RequestID())
	b.signIn(r.AdminToken())
	b.run(chromedp.EmulateViewport(narrow, 900))
	b.visit("/console/requests/" + u.RequestID)
	if cut := eval[[]string](b, `[...document.querySelectorAll(".receipt .money")].filter((e) => e.getBoundingClientRect().right > e.closest(".card").getBoundingClientRect().right).map((e) => e.textContent)`); len(cut) > 0 {
		t.Errorf("amounts beyond the edge: %q", cut)
	}
	if shown := eval[int](b, `document.querySelectorAll(".receipt .total .money").length`); shown == 0 {
		t.Error("the receipt has no total")
	}
}
