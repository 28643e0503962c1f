package console_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestPagesNeedASession(t *testing.T) {
	t.Parallel()
	b := consoletest.Start(t).Browser()
	answer, _ := b.Get("/console/requests?model=m")
	if want := "/console/sign-in?return_to=%2Fconsole%2Frequests%3Fmodel%3Dm"; answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != want {
		t.Errorf("got %d to %q; want 303 to %q", answer.StatusCode, answer.Header.Get("Location"), want)
	}
}

func TestSessionBeginsAndEnds(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	b := w.Browser()
	answer, _ := b.Post("/console/sign-in", "token", servertest.BootstrapToken, "return_to", "/console/accounts?x=1")
	if at := answer.Header.Get("Location"); answer.StatusCode != http.StatusSeeOther || at != "/console/accounts?x=1" {
		t.Fatalf("got %d to %q; want the page that was wanted", answer.StatusCode, at)
	}
	cookie := answer.Header.Get("Set-Cookie")
	for _, attribute := range []string{"HttpOnly", "SameSite=Lax", "Path=/"} {
		if !strings.Contains(cookie, attribute) {
			t.Errorf("the cookie %q has no %s", cookie, attribute)
		}
	}
	if answer, _ := b.Get("/console/accounts"); answer.StatusCode != http.StatusOK {
		t.Errorf("with a session: got %d", answer.StatusCode)
	}
	secret := b.Client.Jar.Cookies(answer.Request.URL)
	if answer, _ := b.Post("/console/sign-out"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("sign out: got %d", answer.StatusCode)
	}
	b.Client.Jar.SetCookies(answer.Request.URL, secret) // somebody has kept the cookie
	if answer, _ := b.Get("/console/accounts"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("after signing out: got %d; want the sign-in page", answer.StatusCode)
	}
	entries, err := w.API.ListAudit(t.Context(), nil)
	servertest.Check(t, err)
	var actions []string
	for _, e := range entries.Value.Data {
		actions = append(actions, e.Action+" by "+e.Actor)
	}
	for _, want := range []string{"console.sign_in by bootstrap", "console.sign_out by bootstrap"} {
		if !slices.Contains(actions, want) {
			t.Errorf("the audit log has %q; want %q", actions, want)
		}
	}
}

func TestSessionEndsWithItsToken(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	id, token := w.NewToken(adminclient.ScopeRead)
	b := w.SignedIn(token)
	if answer, _ := b.Get("/console/accounts"); answer.StatusCode != http.StatusOK {
		t.Fatalf("got %d", answer.StatusCode)
	}
	_, err := w.API.RevokeToken(t.Context(), id)
	servertest.Check(t, err)
	if answer, _ := b.Get("/console/accounts"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("after the token was revoked: got %d; want the sign-in page", answer.StatusCode)
	}
}

func TestSessionEndsByTime(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"idle": "last_used_at = now() - interval '31 minutes'", "length": "expires_at = now() - interval '1 second'",
	} {
		w := consoletest.Start(t)
		b := w.SignedIn(servertest.BootstrapToken)
		_, err := w.DB.Pool().Exec(t.Context(), "update console_sessions set "+change)
		servertest.Check(t, err)
		if answer, _ := b.Get("/console/accounts"); answer.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: got %d; want the sign-in page", name, answer.StatusCode)
		}
	}
}

// A form that is sent after the session has ended comes back with what was entered, but without secrets.
func TestFormIsKeptWhileThePersonSignsInAgain(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	b := w.SignedIn(servertest.BootstrapToken)
	path := "/console/accounts/" + a.ID + "/keys/new"
	_, page := b.Get(path)
	key := consoletest.Hidden(t, page, "idempotency_key")
	_, err := w.DB.Pool().Exec(t.Context(), "update console_sessions set expires_at = now() - interval '1 second'")
	servertest.Check(t, err)
	answer, page := b.Post(path, "idempotency_key", key, "name", `a "new" key`, "spend_limit", "12.5", "step", "do")
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(page, `action="`+path+`"`) || !strings.Contains(page, "Sign in again in a new tab") {
		t.Fatalf("got %d to %q: %s; want a page that leads back to the form", answer.StatusCode, answer.Header.Get("Location"), page)
	}
	kept := []string{"step", "edit"}
	for _, name := range []string{"idempotency_key", "name", "spend_limit"} {
		kept = append(kept, name, consoletest.Hidden(t, page, name))
	}
	b.Post("/console/sign-in", "token", servertest.BootstrapToken)
	answer, page = b.Post(path, kept...)
	if answer.StatusCode != http.StatusOK || consoletest.Hidden(t, page, "idempotency_key") != key || !strings.Contains(page, `value="a &#34;new&#34; key"`) || !strings.Contains(page, `value="12.5"`) {
		t.Errorf("got %d: %s; want the form with the values", answer.StatusCode, page)
	}

	_, err = w.DB.Pool().Exec(t.Context(), "update console_sessions set expires_at = now() - interval '1 second'")
	servertest.Check(t, err)
	answer, page = b.Post("/console/accounts/x/keys/new", "idempotency_key", key, "name", "n", "secret", "sk-of-somebody", "not_kept", "secret", "confirmation", "n")
	if answer.StatusCode != http.StatusForbidden || strings.Contains(page, "sk-of-somebody") || strings.Contains(page, "confirmation") || !strings.Contains(page, "but no secrets") {
		t.Errorf("a form with a secret: got %d %s", answer.StatusCode, page)
	}
	if answer, _ := b.Post("/console/accounts/x/keys/new", "idempotency_key", key, "name", strings.Repeat("n", 2<<20)); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("a form that is too large to be kept: got %d; want the sign-in page", answer.StatusCode)
	}
}

func TestFailedSignInOpensNoSession(t *testing.T) {
	t.Parallel()
	b := consoletest.Start(t).Browser()
	answer, text := b.Post("/console/sign-in", "token", "mgwa_wrong")
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(text, "not a valid token") || answer.Header.Get("Set-Cookie") != "" {
		t.Errorf("got %d %q with cookie %q; want 403 without one", answer.StatusCode, text, answer.Header.Get("Set-Cookie"))
	}
	for range 20 {
		answer, text = b.Post("/console/sign-in", "token", "mgwa_wrong")
	}
	if !strings.Contains(text, "Too many sign-ins came") {
		t.Errorf("after many failures: got %d %q", answer.StatusCode, text)
	}
}

// Other sites can neither act in a session nor be the place that signing in leads to.
func TestOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	b := w.SignedIn(servertest.BootstrapToken)
	for _, header := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Origin": {"https://evil.example"}}} {
		if answer, _ := b.Send(http.MethodPost, "/console/sign-out", nil, header); answer.StatusCode != http.StatusForbidden {
			t.Errorf("a POST with %v: got %d; want 403", header, answer.StatusCode)
		}
	}
	for _, to := range []string{"https://evil.example/console/", "//evil.example/console/", `/\evil.example`, "/console/../../x", "/admin/v1/tokens", "javascript:alert(1)"} {
		answer, _ := w.Browser().Post("/console/sign-in", "token", servertest.BootstrapToken, "return_to", to)
		if at := answer.Header.Get("Location"); !strings.HasPrefix(at, "/console/") {
			t.Errorf("return_to %q leads to %q", to, at)
		}
	}
}

func TestCookieOpensNothingButTheConsole(t *testing.T) {
	t.Parallel()
	b := consoletest.Start(t).SignedIn(servertest.BootstrapToken)
	for _, path := range []string{"/admin/v1/whoami", "/admin/v1/accounts", "/admin/v1/tokens"} {
		if answer, _ := b.Get(path); answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s with the cookie: got %d; want 401", path, answer.StatusCode)
		}
	}
}

func TestAnyNameOfABrowserSignsIn(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	for _, agent := range []string{"\xff\xfe", strings.Repeat("a", 199) + "éé", "<script>alert(1)</script>"} {
		b := w.Browser()
		form := url.Values{"token": {servertest.BootstrapToken}}
		if answer, page := b.Send(http.MethodPost, "/console/sign-in", form, http.Header{"User-Agent": {agent}}); answer.StatusCode != http.StatusSeeOther {
			t.Errorf("%.20q: got %d %s", agent, answer.StatusCode, page)
		}
	}
	if _, page := w.SignedIn(servertest.BootstrapToken).Get("/console/access"); strings.Contains(page, "<script>alert") || !strings.Contains(page, "&lt;script&gt;alert") {
		t.Error("the page does not escape the name of a browser")
	}
}

func TestSignInReturnsToPagesOfTheConsoleOnly(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	for _, to := range []string{
		"//evil.example", `/\evil.example`, `\\evil.example`, "https://evil.example/console/", "https:/console/", "/console/../admin/v1/accounts", "/%2f%2fevil.example",
		"/console/%2e%2e//evil.example", "/console/\tx", "javascript:alert(1)", "/consoles/", "/console/..%2f..%2f//evil.example",
	} {
		answer, _ := w.Browser().Post("/console/sign-in", "token", servertest.BootstrapToken, "return_to", to)
		if at := answer.Header.Get("Location"); answer.StatusCode != http.StatusSeeOther || at != "/console/" {
			t.Errorf("%q: got %d to %q", to, answer.StatusCode, at)
		}
	}
}

func TestAnybodyCanSendLittleBeforeSigningIn(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	long := strings.Repeat("x", 1<<20)
	if answer, page := w.Browser().Post("/console/sign-in", "padding", long, "token", servertest.BootstrapToken); answer.StatusCode == http.StatusSeeOther {
		t.Errorf("a body of 1 MB: got %d %.200s", answer.StatusCode, page)
	}
	answer, _ := w.Browser().Post("/console/sign-in", "token", servertest.BootstrapToken, "return_to", "/console/accounts?query="+long[:5000])
	if at := answer.Header.Get("Location"); answer.StatusCode != http.StatusSeeOther || at != "/console/" {
		t.Errorf("an address of 5 KB to return to: got %d to %.100q", answer.StatusCode, at)
	}
}

func TestBrowsersBehindATrustedProxyHaveAddressesOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	from := func(address string) http.Header { return http.Header{"X-Forwarded-For": {address}} }
	form := url.Values{"token": {servertest.BootstrapToken}}
	if answer, page := w.Browser().Send(http.MethodPost, "/console/sign-in", form, from("203.0.113.7")); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	if _, page := w.SignedIn(servertest.BootstrapToken).Get("/console/access"); !strings.Contains(page, "203.0.113.7") {
		t.Errorf("the page Access has no address of the browser: %s", page)
	}
	wrong := url.Values{"token": {"mgwa_wrong"}}
	for range 20 {
		w.Browser().Send(http.MethodPost, "/console/sign-in", wrong, from("203.0.113.8"))
	}
	if answer, page := w.Browser().Send(http.MethodPost, "/console/sign-in", wrong, from("203.0.113.8")); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("after many failures: got %d %s", answer.StatusCode, page)
	}
	if answer, page := w.Browser().Send(http.MethodPost, "/console/sign-in", wrong, from("203.0.113.9")); answer.StatusCode != http.StatusForbidden {
		t.Errorf("the first failure of another address: got %d %s", answer.StatusCode, page)
	}
}
