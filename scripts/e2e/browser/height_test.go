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

// The button of a form that is longer than the screen is seen without scrolling, and hides no field that has the focus.
func TestButtonOfALongFormIsSeenAtOnce(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	b.signIn(r.AdminToken())
	b.run(chromedp.EmulateViewport(1280, 720))
	b.visit("/console/accounts/" + account.ID)
	b.run(chromedp.Click(`a[href$="/edit"]`, chromedp.ByQuery))
	b.await("the form", `!!document.querySelector("dialog[open] .buttons")`)
	const atTop = `(e) => { const box = e.getBoundingClientRect(); return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) === e; }`
	if long := eval[bool](b, `document.querySelector("dialog").scrollHeight > document.querySelector("dialog").clientHeight`); !long {
		t.Fatal("the form is not longer than the screen")
	}
	if seen := eval[bool](b, `(`+atTop+`)(document.querySelector("dialog .buttons .primary"))`); !seen {
		t.Error("the button is not seen")
	}
	if hidden := eval[[]string](b, `[...document.querySelectorAll("dialog :is(input, textarea):not([type=hidden])")]
		.filter((e) => { e.focus(); return !(`+atTop+`)(e); }).map((e) => e.name)`); len(hidden) > 0 {
		t.Errorf("with the focus, these fields are hidden: %q", hidden)
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
