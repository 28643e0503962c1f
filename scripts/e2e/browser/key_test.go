package browser

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/apikey"
)

// press loads the page to which a button of a form leads, and returns its status.
func (b *tab) press(step string) int64 {
	b.t.Helper()
	return b.load(chromedp.Click(`form.edit button[name="step"][value="`+step+`"]`, chromedp.ByQuery))
}

// source returns the page as the server sends it, and with what scripts have added.
func (b *tab) source() string {
	b.t.Helper()
	return eval[string](b, `document.documentElement.outerHTML`)
}

// secretShown returns the secret that a page shows.
func (b *tab) secretShown() string {
	b.t.Helper()
	return eval[string](b, `document.querySelector("main .card pre").innerText.trim()`)
}

// checkAbsent checks that a secret is in no address that the tab asked for, and in no log.
func (b *tab) checkAbsent(r *rig.Rig, secret string) {
	b.t.Helper()
	_, requests := b.taken()
	for _, q := range requests {
		if strings.Contains(q.url, secret) {
			b.t.Errorf("the secret is in the address of a request of the kind %s", q.kind)
		}
	}
	logs, err := filepath.Glob(filepath.Join(r.Dir(), "log", "*"))
	if err != nil || len(logs) == 0 {
		b.t.Fatalf("got logs %v, %v", logs, err)
	}
	for _, path := range logs {
		if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), secret) {
			b.t.Errorf("%s has the secret, or cannot be read: %v", filepath.Base(path), err)
		}
	}
}

func TestNewKeyShowsItsSecretOnce(t *testing.T) {
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{})
	b.signIn(r.AdminToken())
	b.visit("/console/accounts/" + account.ID + "/keys")
	b.load(chromedp.Click(`a[href$="/keys/new"]`, chromedp.ByQuery))
	b.run(chromedp.SetValue(`[name="name"]`, "issued in a browser", chromedp.ByQuery), chromedp.SetValue(`[name="spend_limit"]`, "12.5", chromedp.ByQuery))
	if status := b.press("do"); status != http.StatusOK {
		t.Fatalf("issue a key: got %d:\n%s", status, b.text())
	}
	b.has("The key was issued.", "The secret, shown once", "Applied by all 2 proxies: "+rig.DataPlane(0)+", "+rig.DataPlane(1)+".")
	secret := b.secretShown()
	for i := range r.Proxies {
		answer := r.Do(t, rig.Request{Proxy: i, Path: "/v1/chat/completions", Key: secret, Body: map[string]any{
			"model": model, "messages": []any{map[string]any{"role": "user", "content": "Hello"}},
		}})
		if answer.Status != http.StatusOK {
			t.Errorf("a request with the new key at proxy %d: got %s", i, answer)
		}
	}

	b.load(chromedp.Reload())
	b.has("The key was issued by this form already.")
	page := b.at()
	gone := func(after string) {
		t.Helper()
		if strings.Contains(b.source(), secret) {
			t.Errorf("after %s, %s has the secret", after, b.at())
		}
	}
	gone("a reload")
	b.run(chromedp.Evaluate(`history.back()`, nil))
	b.await("the page before", fmt.Sprintf(`location.pathname !== %q && document.readyState === "complete"`, page))
	gone("going back")
	b.visit(page)
	b.has("issued in a browser", "12.5")
	gone("opening the page of the key")
	b.visit("/console/accounts/" + account.ID + "/changes")
	gone("the changes of the account")
	b.checkAbsent(r, secret)
	keys, err := r.Admin.ListKeys(t.Context(), account.ID, nil)
	if err != nil || len(keys.Value.Data) != 2 {
		t.Errorf("the account has keys %v, %v; want the first one and that of the form", keys, err)
	}
}

func TestRevealedKeyNeedsAFreshSignInAndIsAudited(t *testing.T) {
	rig.Long(t)
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	id, secret := account.NewKey(t, "")
	token, err := r.Admin.CreateToken(t.Context(), nil, adminclient.TokenCreate{Name: t.Name(), Scopes: []adminclient.Scope{adminclient.ScopeObserve, adminclient.ScopeKeysReveal}})
	if err != nil {
		t.Fatal(err)
	}
	b.signIn(token.Value.Secret)
	grow := func() {
		t.Helper()
		const older = "update console_sessions set created_at = created_at - interval '16 minutes' where starts_with(name, $1) and ended_at is null"
		if tag, err := r.Postgres(t).Exec(t.Context(), older, t.Name()); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("make the sign-in older: %v, %v", tag, err)
		}
	}
	grow()
	b.visit("/console/keys/" + id)
	b.load(chromedp.Click(`a[href$="/reveal"]`, chromedp.ByQuery))
	if at := b.at(); !strings.HasPrefix(at, "/console/sign-in?again=1") {
		t.Fatalf("with an old sign-in, the form is at %s:\n%s", at, b.text())
	}
	b.load(chromedp.SetValue("#token", token.Value.Secret, chromedp.ByID), chromedp.Submit("#token", chromedp.ByID))
	if at := b.at(); at != "/console/keys/"+id+"/reveal" {
		t.Fatalf("the new sign-in leads to %s", at)
	}
	grow() // while the form is open
	b.press("do")
	if text := b.source(); strings.Contains(text, secret) || !strings.Contains(text, "more than 15 minutes old") {
		t.Fatalf("a sign-in that has become old reveals the key, or says nothing:\n%s", b.text())
	}
	b.signIn(token.Value.Secret)
	b.visit("/console/keys/" + id + "/reveal")
	b.press("do")
	if got := b.secretShown(); got != secret {
		t.Fatalf("the page shows another secret, of %d characters, or none:\n%s", len(got), b.text())
	}
	b.visit("/console/keys/" + id)
	if strings.Contains(b.source(), secret) {
		t.Error("the page of the key has the secret after it was revealed")
	}
	b.checkAbsent(r, secret)
	entries, err := r.Admin.ListAudit(t.Context(), &adminclient.ListAuditParams{Action: new("key.reveal"), Object: &id})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(entries.Value.Data); n != 1 || !strings.Contains(entries.Value.Data[0].Actor, t.Name()) {
		t.Errorf("the audit log has %d entries about this: %v; want one of %s", n, entries.Value.Data, t.Name())
	}
}

func TestRevokedKeyIsRefusedWhenThePageSaysSo(t *testing.T) {
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{})
	id, secret := account.NewKey(t, "")
	chat := func(proxy int) *rig.Answer {
		return r.Do(t, rig.Request{Proxy: proxy, Path: "/v1/chat/completions", Key: secret, Body: map[string]any{
			"model": model, "messages": []any{map[string]any{"role": "user", "content": "Hello"}},
		}})
	}
	for i := range r.Proxies { // both know the key
		if answer := chat(i); answer.Status != http.StatusOK {
			t.Fatalf("got %s", answer)
		}
	}
	k, err := r.Admin.GetKey(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b.signIn(r.AdminToken())
	revoke := func(typed string) int64 {
		b.visit("/console/keys/" + id + "/revoke")
		b.run(chromedp.SetValue(`[name="confirmation"]`, typed, chromedp.ByQuery))
		return b.press("do")
	}
	revoke("something else")
	if answer := chat(0); answer.Status != http.StatusOK {
		t.Fatalf("without the right confirmation: got %s; want that nothing is revoked", answer)
	}
	if status := revoke(k.Value.Name); status != http.StatusOK {
		t.Fatalf("revoke: got %d:\n%s", status, b.text())
	}
	for i := range r.Proxies {
		if answer := chat(i); answer.Status != http.StatusUnauthorized {
			t.Errorf("after the page, proxy %d: got %s; want 401", i, answer)
		}
	}
	b.has("The key is revoked, and no proxy accepts it any more.", "Applied by all 2 proxies: "+rig.DataPlane(0)+", "+rig.DataPlane(1)+".")
}

// A proxy that does not respond is named, and the page says until when it may accept the key.
func TestRevocationNamesTheProxyThatHasNotConfirmedIt(t *testing.T) {
	rig.Long(t)
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	id, _ := account.NewKey(t, "")
	k, err := r.Admin.GetKey(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b.signIn(r.AdminToken())
	b.visit("/console/keys/" + id + "/revoke")
	b.run(chromedp.SetValue(`[name="confirmation"]`, k.Value.Name, chromedp.ByQuery))
	resume := r.Pause(t, rig.DataPlane(1))
	if status := b.press("do"); status != http.StatusOK {
		t.Fatalf("revoke: got %d:\n%s", status, b.text())
	}
	b.has("The key is revoked, but not every proxy has confirmed it yet.", "It is effective at 20", rig.DataPlane(1))
	resume()
	r.AwaitSessions(t)
	rig.Await(t, "the confirmation of both proxies", func(context.Context) error {
		b.visit("/console/keys/" + id + "/revoke")
		b.press("do")
		if text := b.text(); !strings.Contains(text, "no proxy accepts it any more") {
			return fmt.Errorf("got %q", text)
		}
		return nil
	})
}

// The link of a row covers the row. What else can be pressed in it lies above.
func TestLimitOfAKeyIsChangedFromTheList(t *testing.T) {
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	b.signIn(r.AdminToken())
	list := "/console/accounts/" + account.ID + "/keys"
	b.visit(list)
	b.run(chromedp.Click(`a[href="/console/keys/`+account.KeyID+`/edit"]`, chromedp.ByQuery))
	b.await("the form of the limit", `!!document.querySelector("dialog[open] [name=spend_limit]") && location.pathname === `+strconv.Quote(list))
}

// A limit set on the page, and keys imported by their hashes, act at every proxy when the page says so.
func TestChangedLimitAndImportedKeysActAtEveryProxy(t *testing.T) {
	rig.Long(t)
	b := open(t)
	r := filled(t)
	account := r.Account(t, rig.AccountSpec{})
	model := r.Model(t, rig.Model{})
	both := "Applied by all 2 proxies: " + rig.DataPlane(0) + ", " + rig.DataPlane(1) + "."
	each := func(after, key string, status int) {
		t.Helper()
		for i, answer := range askEach(t, r, key, model) {
			if answer.Status != status {
				t.Errorf("after %s, proxy %d: got %s; want %d", after, i, answer, status)
			} else if status == http.StatusOK {
				r.AwaitUsage(t, answer.RequestID()) // it counts as spent from now on
			}
		}
	}
	b.signIn(r.AdminToken())
	limit := func(to, after string, status int) {
		t.Helper()
		b.visit("/console/keys/" + account.KeyID + "/edit")
		b.has("Requests are refused with 403")
		b.run(chromedp.Clear(`[name="spend_limit"]`, chromedp.ByQuery))
		if to != "" { // SetValue refuses an empty text
			b.run(chromedp.SetValue(`[name="spend_limit"]`, to, chromedp.ByQuery))
		}
		if got := b.press("do"); got != http.StatusOK {
			t.Fatalf("%s: got %d:\n%s", after, got, b.text())
		}
		b.has("The key was saved.", both)
		each(after, account.Key, status)
	}
	limit("0.000000001", "a low limit", http.StatusForbidden)
	b.has("of 0.000000001")
	limit("", "no limit", http.StatusOK)
	b.has("no limit of its own")
	limit("0.000000001", "a limit below what was spent", http.StatusForbidden)
	b.has("The limit is reached: requests are refused with 403.")
	b.visit("/console/connect?key_id=" + account.KeyID)
	b.has("The key has reached its spend limit: requests are refused with 403.")

	imported := []string{apikey.Generate(), apikey.Generate()}
	hasher := r.Hasher(t)
	lines := fmt.Sprintf("imported 0, %s\nimported 1, %s\n", hasher.Hash(imported[0]), hasher.Hash(imported[1]))
	enter := func(text string) {
		t.Helper()
		b.visit("/console/accounts/" + account.ID + "/keys/import")
		b.run(chromedp.SetValue(`textarea[name="keys"]`, text, chromedp.ByQuery))
		b.press("do")
	}
	enter(lines + "wrong, not a hash\n")
	b.has("line 3")
	each("a refused import", imported[0], http.StatusUnauthorized)
	enter(lines)
	b.has("2 keys were imported.", both, "imported 0", "imported 1")
	for _, key := range imported {
		each("the import", key, http.StatusOK)
		b.checkAbsent(r, key)
	}
}

// A demo key is tried from the page that connects clients: the answer, its request and its receipt follow.
func TestDemoKeyIsTriedFromThePageThatConnectsClients(t *testing.T) {
	rig.Long(t)
	b := open(t)
	r := filled(t)
	account, model := r.Account(t, rig.AccountSpec{}), r.Model(t, rig.Model{})
	key, err := r.Admin.CreateKey(t.Context(), account.ID, nil, adminclient.KeyCreate{Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	b.signIn(r.AdminToken())
	b.visit("/console/connect?key_id=" + key.Value.ID + "&model=" + model)
	b.has("curl", "MGW_API_KEY")
	b.run(chromedp.Click(`a[href*="/try?"]`, chromedp.ByQuery))
	const button = `dialog button[name="step"][value="do"]`
	b.await("the form in a dialog", `document.querySelector('`+button+`') !== null`)
	if status := b.load(chromedp.Click(button, chromedp.ByQuery)); status != http.StatusOK {
		t.Fatalf("try the key: got %d:\n%s", status, b.text())
	}
	b.has("200", "POST /v1/chat/completions", "chat.completion")
	id := eval[string](b, `document.querySelector('main a.primary').getAttribute("href").split("/").pop()`)
	b.checkAbsent(r, key.Value.Secret)
	u := r.AwaitUsage(t, id)
	b.load(chromedp.Click("main a.primary", chromedp.ByQuery))
	b.has(u.RequestID, u.Receipt.Cost)
}
