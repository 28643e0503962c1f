package browser

import (
	"context"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"modelgateway/scripts/e2e/rig"
)

// ask sends a chat request with a key.
func ask(t *testing.T, r *rig.Rig, key, model string) *rig.Answer {
	t.Helper()
	return r.Do(t, rig.Request{Path: "/v1/chat/completions", Key: key, Body: map[string]any{
		"model": model, "messages": []any{map[string]any{"role": "user", "content": "Hello there"}},
	}})
}

func TestLiveShowsRequestsAndWhatWasShortAndKeepsFiveHundredRows(t *testing.T) {
	rig.Long(t)
	b := open(t)
	r := filled(t)
	model := r.Model(t, rig.Model{})
	account := r.Account(t, rig.AccountSpec{})
	_, limited := account.NewKey(t, "0.000001")
	b.signIn(r.AdminToken())
	b.visit("/console/live?account_id=" + account.ID)
	b.await("the view to be live", `document.querySelector("[data-state]").textContent.includes("proxies are heard")`)
	if text := b.text(); !strings.Contains(text, "No request has ended since the view was opened that matches the filter") {
		t.Errorf("the empty view does not tell that it is empty: %q", text)
	}
	rig.Await(t, "a request in the view", func(context.Context) error {
		ask(t, r, account.Key, model)
		return chromedp.Run(b.ctx, chromedp.WaitVisible("#live tbody tr", chromedp.ByQuery))
	})
	if got := ask(t, r, limited, model); got.Status != http.StatusForbidden {
		t.Fatalf("got %s; want a refusal", got)
	}
	b.await("the refusal with what was short", `/403 spend_limit_exceeded.*wanted .*, had /s.test(document.querySelector("#live tbody").textContent)`)
	if text := b.text(); strings.Contains(text, "No request has ended") {
		t.Errorf("the view tells that it is empty: %q", text)
	}
	if link := eval[string](b, `[...document.querySelectorAll("#live tbody tr")].find((row) => row.textContent.includes("spend_limit_exceeded")).querySelector("td:nth-child(3) a").getAttribute("href")`); !strings.HasPrefix(link, "/console/refusals?account_id="+account.ID) || !strings.HasSuffix(link, "code=spend_limit_exceeded") {
		t.Errorf("the refused request leads to %s", link)
	}

	b.run(chromedp.Click("[data-pause]", chromedp.ByQuery))
	before := eval[int](b, `document.querySelectorAll("#live tbody tr").length`)
	const burst = 1200 // more than the view keeps while it is paused
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range burst / 8 {
				if _, err := r.Try(t.Context(), rig.Request{Path: "/v1/models", Key: account.Key}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	b.await("the requests that wait or were left out", `(() => {
		const n = [...document.querySelector("[data-state]").textContent.matchAll(/(\d+) (?:wait|were left out)/g)].reduce((sum, m) => sum + Number(m[1]), 0);
		return n >= 1200;
	})()`)
	if after := eval[int](b, `document.querySelectorAll("#live tbody tr").length`); after != before {
		t.Errorf("the paused view went from %d to %d rows", before, after)
	}
	b.run(chromedp.Click("[data-pause]", chromedp.ByQuery))
	b.await("the rows after the pause", `document.querySelectorAll("#live tbody tr").length > 100 && /\d+ were left out/.test(document.querySelector("[data-state]").textContent)`)
	if rows := eval[int](b, `document.querySelectorAll("#live tbody tr").length`); rows > 500 {
		t.Errorf("the view keeps %d rows; want at most 500", rows)
	}
}

func TestReceiptHasTheFiguresOfTheAPIAndIsCorrectedFromThePage(t *testing.T) {
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{Credit: "999999999.123456789"})
	// The amounts have more digits than a float has.
	model := r.Model(t, rig.Model{Price: map[string]any{"input": "1234567.123456789", "output": "7654321.987654321"}})
	answer := ask(t, r, account.Key, model)
	if answer.Status != http.StatusOK {
		t.Fatalf("got %s", answer)
	}
	u := r.AwaitUsage(t, answer.RequestID())
	b.signIn(r.AdminToken())
	b.visit("/console/requests/" + u.RequestID)
	page := ungrouped(b.text())
	sum, _ := new(big.Rat).SetString("0")
	for _, line := range u.Receipt.Lines {
		amount, ok := new(big.Rat).SetString(line.Amount)
		if !ok {
			t.Fatalf("amount %q", line.Amount)
		}
		sum.Add(sum, amount)
		for _, figure := range []string{line.Amount, line.UnitPrice} {
			if !strings.Contains(page, figure) {
				t.Errorf("the page does not have %s of %s", figure, line.Line)
			}
		}
	}
	for _, figure := range []string{u.Receipt.ListCost, u.Receipt.Cost, u.Receipt.Reservation, u.Receipt.Currency} {
		if !strings.Contains(page, figure) {
			t.Errorf("the page does not have %s", figure)
		}
	}
	if cost, _ := new(big.Rat).SetString(u.Receipt.Cost); cost == nil || sum.FloatString(9) != cost.FloatString(9) {
		t.Errorf("the lines sum to %s; the cost is %s", sum.FloatString(9), u.Receipt.Cost)
	}
	b.load(chromedp.Click(`a[href*="/book?kind=correction"]`, chromedp.ByQuery))
	b.run(chromedp.SetValue(`[name="reason"]`, "The answer was useless.", chromedp.ByQuery))
	for _, step := range []string{"review", "do"} {
		b.load(chromedp.Click(`button[name="step"][value="`+step+`"]`, chromedp.ByQuery))
	}
	corrected := r.AwaitUsage(t, u.RequestID)
	if len(corrected.Corrections) != 1 || corrected.Corrections[0].Amount != u.Receipt.Cost {
		t.Fatalf("corrections %+v; want one of %s", corrected.Corrections, u.Receipt.Cost)
	}
	b.visit("/console/requests/" + u.RequestID)
	if text := b.text(); !strings.Contains(text, "After corrections") {
		t.Errorf("the receipt does not show the correction:\n%s", text)
	}
	balance, err := r.Admin.GetBalance(t.Context(), account.ID)
	if err != nil || !strings.HasPrefix(balance.Value.Balance, "999999999.123456789") {
		t.Errorf("the balance is %v, %v; want all that was paid in", balance, err)
	}
	b.visit("/console/accounts/" + account.ID + "/ledger")
	if text := ungrouped(b.text()); !strings.Contains(text, u.Receipt.Cost) || !strings.Contains(text, "999999999.123456789") {
		t.Errorf("the ledger does not show the correction and the balance:\n%s", text)
	}
}

// ungrouped returns a text with amounts as the API has them.
func ungrouped(text string) string {
	return strings.NewReplacer("\u202f", "", "−", "-").Replace(text)
}

func TestExplainTellsWhatWouldHappen(t *testing.T) {
	rig.Long(t)
	b := open(t)
	r := filled(t)
	poor := r.Account(t, rig.AccountSpec{Credit: "0"})
	model := r.Model(t, rig.Model{})
	b.signIn(r.AdminToken())
	b.visit("/console/explain")
	b.load(chromedp.SetValue(`input[name="key_id"]`, poor.KeyID, chromedp.ByQuery), chromedp.SetValue(`input[name="model"]`, model, chromedp.ByQuery),
		chromedp.Submit(`input[name="model"]`, chromedp.ByQuery))
	text := b.text()
	for _, want := range []string{"The client would get 402 insufficient_quota", "short", "try 1", rig.DataPlane(0), rig.DataPlane(1)} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not have %q:\n%s", want, text)
		}
	}
}
