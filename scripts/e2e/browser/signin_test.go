package browser

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
)

// cookie returns the cookie of the session.
func (b *tab) cookie() *network.Cookie {
	b.t.Helper()
	var cookies []*network.Cookie
	b.run(chromedp.ActionFunc(func(ctx chromedpContext) (err error) {
		cookies, err = network.GetCookies().WithURLs([]string{b.base + "/console/"}).Do(ctx)
		return err
	}))
	for _, c := range cookies {
		if strings.Contains(c.Name, "mgw_console") && !strings.HasSuffix(c.Name, "_notice") && !strings.HasSuffix(c.Name, "_pending") {
			return c
		}
	}
	return nil
}

func TestSignInByTokenAndSignOut(t *testing.T) {
	b := open(t)
	if status := b.signIn("mgwa_wrong"); status != http.StatusForbidden || !strings.Contains(b.text(), "not a valid token") || b.cookie() != nil {
		t.Fatalf("a wrong token: got %d %q, cookie %v", status, b.text(), b.cookie())
	}
	for range 20 {
		b.signIn("mgwa_wrong")
	}
	if text := b.text(); !strings.Contains(text, "Too many sign-ins came") {
		t.Errorf("after many wrong tokens: got %q", text)
	}
	if status := b.signIn(filled(t).AdminToken()); status != http.StatusOK || b.at() != "/console/" {
		t.Fatalf("the right token: got %d at %s", status, b.at())
	}
	cookie := b.cookie()
	if cookie == nil || !cookie.HTTPOnly || cookie.SameSite != network.CookieSameSiteLax || cookie.Path != "/" || len(cookie.Value) < 43 {
		t.Fatalf("the cookie is %+v", cookie)
	}
	b.visit("/console/accounts")
	if !strings.Contains(b.text(), "Northwind Robotics") {
		t.Fatalf("got %q", b.text())
	}
	b.load(chromedp.Evaluate(`document.querySelector('form[action="/console/sign-out"]').requestSubmit()`, nil))
	if at := b.at(); !strings.HasPrefix(at, "/console/sign-in") {
		t.Errorf("signing out leads to %s", at)
	}
	b.run(chromedp.Evaluate(`history.back()`, nil))
	b.await("the sign-in page instead of the page before", `!document.body.innerText.includes("Northwind Robotics") && location.pathname === "/console/sign-in"`)
}

func TestPageOfARevokedTokenIsSignedOutAtItsNextRequest(t *testing.T) {
	rig.Long(t)
	b := open(t)
	r := filled(t)
	token, err := r.Admin.CreateToken(t.Context(), nil, adminclient.TokenCreate{Name: t.Name(), Scopes: []adminclient.Scope{adminclient.ScopeRead}})
	if err != nil {
		t.Fatal(err)
	}
	b.signIn(token.Value.Secret)
	b.visit("/console/accounts")
	if _, err := r.Admin.RevokeToken(t.Context(), token.Value.ID); err != nil {
		t.Fatal(err)
	}
	b.load(chromedp.Click(`nav a[href="/console/requests"]`, chromedp.ByQuery))
	if at := b.at(); !strings.HasPrefix(at, "/console/sign-in") {
		t.Errorf("the next page is %s", at)
	}
}

// observer is a person of the provider who may only look.
func observer() map[string]any { return map[string]any{"groups": []string{"on-call"}} }

func TestSignInByOpenIDConnect(t *testing.T) {
	rig.Long(t)
	b := open(t)
	provider.become(observer(), nil)
	b.visit("/console/sign-in?return_to=%2Fconsole%2Faccounts")
	b.load(chromedp.Click(`a[href^="/console/sign-in/provider"]`, chromedp.ByQuery))
	if b.at() != "/console/accounts" {
		t.Fatalf("signing in leads to %s: %s", b.at(), b.text())
	}
	for _, path := range []string{"/console/", "/console/accounts", "/console/requests"} {
		b.visit(path)
		if n := eval[int](b, `document.querySelectorAll('main form[method="post"], main a[data-dialog], main .danger').length`); n != 0 {
			t.Errorf("%s has %d controls that change something", path, n)
		}
	}
	b.visit("/console/accounts")
	status := eval[int](b, `fetch("/console/accounts/new", {method: "POST", body: new URLSearchParams({name: "x", step: "do"})}).then((r) => r.status)`)
	if status != http.StatusForbidden {
		t.Errorf("a change sent by hand: got %d; want 403", status)
	}
}

func TestAlteredSignInByOpenIDConnectIsRefused(t *testing.T) {
	rig.Long(t)
	used := ""
	with := func(more map[string]any) map[string]any {
		claims := observer()
		maps.Copy(claims, more)
		return claims
	}
	for name, test := range map[string]struct {
		claims map[string]any
		alter  func(url.Values)
		want   string
	}{
		"another state":  {observer(), func(v url.Values) { v.Set("state", "another") }, "not begun in this browser"},
		"another nonce":  {with(map[string]any{"nonce": "another"}), nil, ""},
		"another code":   {observer(), func(v url.Values) { v.Set("code", "another") }, ""},
		"without groups": {map[string]any{}, nil, "The claim groups was looked for"},
	} {
		b := open(t)
		provider.become(test.claims, test.alter)
		b.visit("/console/sign-in")
		status := b.load(chromedp.Click(`a[href^="/console/sign-in/provider"]`, chromedp.ByQuery))
		if status != http.StatusForbidden && status != http.StatusServiceUnavailable || !strings.Contains(b.text(), test.want) || b.cookie() != nil {
			t.Errorf("%s: got %d %q, cookie %v; want a refusal with %q", name, status, b.text(), b.cookie(), test.want)
		}
	}
	provider.become(observer(), func(v url.Values) { used = v.Encode() })
	b := open(t)
	b.visit("/console/sign-in")
	b.load(chromedp.Click(`a[href^="/console/sign-in/provider"]`, chromedp.ByQuery))
	if status := b.visit("/console/sign-in/callback?" + used); status != http.StatusForbidden {
		t.Errorf("a code that was used: got %d; want 403", status)
	}
}

// A page of another site sends forms to the console: the browser leaves the cookie out, and the console refuses them.
func TestOtherSiteCannotChangeAnything(t *testing.T) {
	b := open(t)
	b.signIn(filled(t).AdminToken())
	before := b.cookie()
	// The address localhost is another site than 127.0.0.1.
	other := strings.Replace(provider.url, "127.0.0.1", "localhost", 1)
	b.run(chromedp.Navigate(other + "/keys"))
	status := b.load(chromedp.Evaluate(`(() => {
		const form = document.createElement("form");
		form.method = "post";
		form.action = "`+b.base+`/console/sign-out";
		document.body.append(form);
		form.submit();
	})()`, nil))
	if status != http.StatusForbidden {
		t.Errorf("got %d; want 403", status)
	}
	if b.visit("/console/accounts"); b.at() != "/console/accounts" || before == nil {
		t.Errorf("the session has ended: at %s", b.at())
	}
}
