package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"modelgateway/scripts/e2e/rig"
)

// edit opens the catalog in the editor, replaces a text that is in it once, and shows the changes. It returns the document.
func (b *tab) edit(before, after string) (document string) {
	b.t.Helper()
	b.visit("/console/catalog")
	document = eval[string](b, `document.querySelector('textarea[name="document"]').value`)
	if n := strings.Count(document, before); n != 1 {
		b.t.Fatalf("the document has %q %d times; want once", before, n)
	}
	document = strings.Replace(document, before, after, 1)
	b.run(chromedp.SetValue(`textarea[name="document"]`, document, chromedp.ByQuery))
	if status := b.load(chromedp.Click(`button[name="step"][value="review"]`, chromedp.ByQuery)); status != http.StatusOK {
		b.t.Fatalf("the review: got %d:\n%s", status, b.text())
	}
	return document
}

// has checks that the page has texts.
func (b *tab) has(texts ...string) {
	b.t.Helper()
	page := b.text()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			b.t.Errorf("%s does not have %q:\n%s", b.at(), text, page)
		}
	}
}

func TestCatalogAppliesWhatWasReviewedAndRefusesAnOlderReview(t *testing.T) {
	b, second := open(t), open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Price: map[string]any{"input": "1.230001", "output": "2.75"}})
	u := r.AwaitUsage(t, ask(t, r, account.Key, model).RequestID())
	b.signIn(r.AdminToken())
	second.signIn(r.AdminToken())

	second.edit("1.230001", "1.230009")
	document := b.edit("1.230001", "1.230005")
	b.has("Apply this change", "1.230001", "1.230005", model, t.Name(), "1 account used it", u.Receipt.Cost)
	if status := b.load(chromedp.Click(`button[name="step"][value="do"]`, chromedp.ByQuery)); status != http.StatusOK {
		t.Fatalf("apply: got %d:\n%s", status, b.text())
	}
	b.has("One change was applied.", "Applied by all 2 proxies: "+rig.DataPlane(0)+", "+rig.DataPlane(1)+".")
	if now := eval[string](b, `document.querySelector('textarea[name="document"]').value`); now != document {
		t.Errorf("the catalog after applying differs from the document that was reviewed:\n%s", now)
	}

	if status := second.load(chromedp.Click(`button[name="step"][value="do"]`, chromedp.ByQuery)); status != http.StatusPreconditionFailed {
		t.Errorf("the older review: got %d; want 412", status)
	}
	second.has("Nothing was applied.", "Apply this change", "1.230005", "1.230009")
	if text := second.text(); strings.Contains(text, "1.230001") {
		t.Errorf("the new review compares with the price before:\n%s", text)
	}
	if now, err := r.Admin.GetModel(t.Context(), model); err != nil || *now.Value.Price.Input != "1.230005" {
		t.Errorf("the price is %v, %v; want that of the first review", now, err)
	}
}

func TestPriceReviewHasTheReceiptsMadeAnew(t *testing.T) {
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Price: map[string]any{"input": "100.5", "output": "200.5"}})
	before := r.AwaitUsage(t, ask(t, r, account.Key, model).RequestID())
	b.signIn(r.AdminToken())
	b.visit("/console/models/" + model + "/price")
	b.run(chromedp.SetValue(`[name="price"]`, `{"input": "321.123456789", "output": "654.987654321"}`, chromedp.ByQuery),
		chromedp.SetValue(`[name="days"]`, "1", chromedp.ByQuery))
	b.load(chromedp.Click(`button[name="step"][value="review"]`, chromedp.ByQuery))
	reviewed := b.text()
	b.load(chromedp.Click(`button[name="step"][value="do"]`, chromedp.ByQuery))
	b.has("The price was set.", "Applied by all 2 proxies")
	// The same request costs by the new price as much as the review tells of the one before.
	after := r.AwaitUsage(t, ask(t, r, account.Key, model).RequestID())
	if before.Receipt.Cost == after.Receipt.Cost {
		t.Fatalf("both requests cost %s", after.Receipt.Cost)
	}
	want := "In the last day, 1 request of 1 account was charged " + before.Receipt.Cost + " USD. By this price it would have been charged " + after.Receipt.Cost + " USD"
	if !strings.Contains(reviewed, want) || !strings.Contains(reviewed, t.Name()+": "+before.Receipt.Cost+" → "+after.Receipt.Cost) {
		t.Errorf("the review does not have %q and the account:\n%s", want, reviewed)
	}
}
