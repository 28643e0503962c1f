package browser

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"modelgateway/scripts/e2e/rig"
)

// brokenWords are the words that a table of a page shows on more than one line, without ids and without names of one very long word.
const brokenWords = `[...document.querySelectorAll("main table :is(td, th)")].flatMap((cell) => {
	const found = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		for (const word of texts.currentNode.data.matchAll(/(?<![\p{L}\p{N}_])[\p{L}_]{4,24}(?![\p{L}\p{N}_])/gu)) {
			const range = document.createRange();
			range.setStart(texts.currentNode, word.index);
			range.setEnd(texts.currentNode, word.index + word[0].length);
			if (new Set([...range.getClientRects()].filter((box) => box.width > 0).map((box) => Math.round(box.top))).size > 1) found.push(word[0]);
		}
	}
	return found;
})`

// A code or a name that is broken inside cannot be read at a glance.
func TestNoWordOfATableIsBrokenInside(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	_, limited := account.NewKey(t, "0.000001")
	model := r.Model(t, rig.Model{})
	refused := ask(t, r, limited, model)
	if refused.Status != http.StatusForbidden {
		t.Fatalf("got %s; want a refusal", refused)
	}
	unsupported := r.Do(t, rig.Request{Path: "/v1/chat/completions", Key: account.Key, Body: map[string]any{
		"model": model, "messages": []any{map[string]any{"role": "user", "content": "Hello"}}, "warp_factor": 9,
	}})
	if unsupported.Status != http.StatusBadRequest {
		t.Fatalf("got %s; want a refusal", unsupported)
	}
	b.signIn(r.AdminToken())
	const page = "/console/refusals"
	rig.Await(t, "both refusals", func(context.Context) error {
		b.visit(page + "?account_id=" + account.ID)
		if text := b.text(); !strings.Contains(text, "spend_limit_exceeded") || !strings.Contains(text, "unsupported_parameter") {
			return errors.New("not there")
		}
		return nil
	})
	for _, path := range []string{page + "?account_id=" + account.ID, page, "/console/requests", "/console/accounts", "/console/models", "/console/events", "/console/routes", "/console/usage", "/console/proxies", "/console/webhooks", "/console/access", "/console/money", "/console/accounts/" + account.ID + "/ledger", "/console/providers/" + rig.SimProvider} {
		b.visit(path)
		for _, word := range eval[[]string](b, brokenWords) {
			t.Errorf("%s: %q is broken inside", path, word)
		}
	}
	b.run(chromedp.EmulateViewport(390, 900))
	b.visit("/console/providers/" + rig.SimProvider)
	for _, word := range eval[[]string](b, strings.Replace(brokenWords, "main table :is(td, th)", "main .address", 1)) {
		t.Errorf("an address on a phone: %q is broken inside", word)
	}
}

// A person who looks at local times sees in which zone they are, in every place where a time stands.
func TestLocalTimesNameTheirZone(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	u := r.AwaitUsage(t, ask(t, r, account.Key, "demo-all").RequestID())
	b.signIn(r.AdminToken())
	b.run(emulation.SetTimezoneOverride("Asia/Kathmandu"))
	b.visit("/console/requests/" + u.RequestID)
	b.run(chromedp.Click(".person summary", chromedp.ByQuery), chromedp.Click("[data-local-time]", chromedp.ByQuery))
	const shown = `[...document.querySelectorAll("time[datetime]")].map((time) => time.title || time.textContent)`
	for _, path := range []string{"", "/console/refusals", "/console/"} {
		if path != "" {
			b.visit(path)
		}
		times := eval[[]string](b, shown)
		for _, text := range times {
			if !strings.Contains(text, "GMT+5:45") {
				t.Errorf("%s: a local time without its zone: %q", b.at(), text)
				break
			}
		}
		if len(times) == 0 {
			t.Errorf("%s has no times", b.at())
		}
	}
}

// Whoever types a part of a name into a filter is offered those that have it, with their ids.
func TestFiltersSuggestWhatTheSearchFinds(t *testing.T) {
	rig.Long(t)
	t.Parallel()
	b := open(t)
	b.signIn(filled(t).AdminToken())
	b.visit("/console/refusals")
	for field, want := range map[string]struct{ typed, option string }{
		"account_id": {"robotics", "Northwind Robotics · acc_"},
		"project_id": {"storef", "storefront · prj_"},
	} {
		input := `input[name="` + field + `"]`
		b.run(chromedp.SendKeys(input, want.typed, chromedp.ByQuery))
		options := `[...document.querySelector('` + input + `').list?.options ?? []]`
		b.await("the suggestion of "+want.option, options+`.some((o) => o.value.startsWith("`+want.option+`"))`)
	}
}
