package browser

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

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
	rig.Long(t)
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
	rig.Long(t)
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{Price: map[string]any{"input": "100.5", "output": "200.5"}})
	before := r.AwaitUsage(t, ask(t, r, account.Key, model).RequestID())
	b.signIn(r.AdminToken())
	b.visit("/console/models/" + model + "/price")
	b.run(chromedp.SetValue(`[name="price.input"]`, "321.123456789", chromedp.ByQuery),
		chromedp.SetValue(`[name="price.output"]`, "654.987654321", chromedp.ByQuery),
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

// A price list is chosen, reviewed and applied without JavaScript, on a phone. The review has no barriers with it either.
func TestPriceListIsImported(t *testing.T) {
	rig.Long(t)
	b, operator := open(t), open(t)
	r := filled(t)
	model := r.Model(t, rig.Model{Price: map[string]any{"input": "1.5", "output": "2.5"}})
	list := filepath.Join(t.TempDir(), "prices.json")
	text := `{"` + model + `": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 4.000000001e-06, "output_cost_per_token": 2.5e-06},
		"unknown <b>model": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}, "neither": {}}`
	if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	review := func(b *tab) {
		t.Helper()
		b.visit("/console/catalog")
		b.load(chromedp.Click(`main a[href="/console/catalog/price-list"]`, chromedp.ByQuery))
		b.run(chromedp.SetUploadFiles(`input[name="prices"]`, []string{list}, chromedp.ByQuery), chromedp.Focus(`main button[value="do"]`, chromedp.ByQuery))
		if status := b.load(chromedp.KeyEvent(kb.Enter)); status != http.StatusOK {
			t.Fatalf("the review: got %d:\n%s", status, b.text())
		}
		b.has("1 new price", model, "twice as high", "1.50", "4.000000001", "Apply this change", "1 entry has no model in the catalog", "1 part of the list")
	}
	operator.signIn(r.AdminToken())
	review(operator)
	for _, width := range []int64{wide, narrow} {
		operator.run(chromedp.EmulateViewport(width, 900))
		if is := eval[int64](operator, pageWidth); is > width {
			t.Errorf("the review is %d pixels wide at %d", is, width)
		}
		if lost := eval[[]string](operator, unfocused); len(lost) > 0 {
			t.Errorf("at %d: %v", width, lost)
		}
	}

	b.run(emulation.SetScriptExecutionDisabled(true), chromedp.EmulateViewport(narrow, 900))
	b.signIn(r.AdminToken())
	review(b)
	if status := b.load(chromedp.Click(`button[name="step"][value="do"]`, chromedp.ByQuery)); status != http.StatusOK {
		t.Fatalf("apply: got %d:\n%s", status, b.text())
	}
	b.has("One change was applied.")
	if now, err := r.Admin.GetModel(t.Context(), model); err != nil || *now.Value.Price.Input != "4.000000001" || *now.Value.Price.Output != "2.50" {
		t.Errorf("the price is %+v, %v; want that of the list", now, err)
	}
	if status := operator.load(chromedp.Click(`button[name="step"][value="do"]`, chromedp.ByQuery)); status != http.StatusPreconditionFailed {
		t.Errorf("the older review: got %d; want 412", status)
	}
}
