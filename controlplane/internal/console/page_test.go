package console_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestEveryResponseHasTheHeadersOfProtection(t *testing.T) {
	t.Parallel()
	b := consoletest.Start(t).SignedIn(servertest.BootstrapToken)
	for _, path := range []string{"/console/", "/console/sign-in", "/console/nothing", "/console/requests", "/console/requests/req_1"} {
		answer, _ := b.Get(path)
		for name, want := range map[string]string{
			"Content-Security-Policy": "require-trusted-types-for 'script'", "Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff",
			"Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := answer.Header.Get(name); !strings.Contains(got, want) {
				t.Errorf("%s has %s %q; want %q", path, name, got, want)
			}
		}
	}
}

func TestPagesShowWhatTheAPIAnswers(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	b := w.SignedIn(servertest.BootstrapToken)
	if _, text := b.Get("/console/accounts"); !strings.Contains(text, "There are no accounts") {
		t.Errorf("without accounts: %s", text)
	}
	made, err := w.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: `Example <b>"Ltd"</b>`})
	servertest.Check(t, err)
	_, err = w.API.CreateCredit(t.Context(), made.Value.ID, nil, adminclient.CreditCreate{Amount: "234567890.123456789", Kind: adminclient.CreditKindPayment, Reference: "r1"})
	servertest.Check(t, err)
	for _, path := range []string{"/console/accounts", "/console/accounts/" + made.Value.ID} {
		answer, text := b.Get(path)
		if answer.StatusCode != http.StatusOK || !strings.Contains(text, "234567890.123456789") || !strings.Contains(text, "Example &lt;b&gt;") {
			t.Errorf("%s: got %d %s; want the exact balance and the escaped name", path, answer.StatusCode, text)
		}
	}
	if answer, text := b.Get("/console/requests/req_1"); answer.StatusCode != http.StatusNotFound || !strings.Contains(text, "Request not found") {
		t.Errorf("an unknown request: got %d %s", answer.StatusCode, text)
	}
	if answer, _ := b.Get("/console/requests?from=yesterday"); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a wrong time: got %d; want 400", answer.StatusCode)
	}
	if answer, text := b.Get("/console/"); answer.StatusCode != http.StatusOK || !strings.Contains(text, "No catalog has been applied") {
		t.Errorf("the overview: got %d %s", answer.StatusCode, text)
	}
}

func TestPersonSeesOnlyWhatTheScopesAllow(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, token := w.NewToken(adminclient.ScopeKeysReveal)
	answer, text := w.SignedIn(token).Get("/console/accounts")
	if answer.StatusCode != http.StatusForbidden || strings.Contains(text, `href="/console/accounts"`) {
		t.Errorf("without the scope read: got %d %s", answer.StatusCode, text)
	}
	_, token = w.NewToken(adminclient.ScopeRead)
	if answer, text := w.SignedIn(token).Get("/console/"); answer.StatusCode != http.StatusOK || strings.Contains(text, "Needs you") {
		t.Errorf("without the scope observe: got %d %s; want an overview without the diagnosis", answer.StatusCode, text)
	}
}

func TestPagesAreCompressedForBrowsersThatTakeIt(t *testing.T) {
	t.Parallel()
	b := consoletest.Start(t).SignedIn(servertest.BootstrapToken)
	plain, text := b.Send(http.MethodGet, "/console/accounts", nil, http.Header{"Accept-Encoding": {"identity"}})
	packed, compressed := b.Send(http.MethodGet, "/console/accounts", nil, http.Header{"Accept-Encoding": {"gzip"}})
	if plain.Header.Get("Content-Encoding") != "" || !strings.Contains(text, "<html") {
		t.Errorf("without compression: got %q %.40q", plain.Header.Get("Content-Encoding"), text)
	}
	if packed.Header.Get("Content-Encoding") != "gzip" || packed.Header.Get("Vary") != "Accept-Encoding" || 2*len(compressed) > len(text) {
		t.Errorf("with compression: got %v and %d bytes for %d", packed.Header, len(compressed), len(text))
	}
}
