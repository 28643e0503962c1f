package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/catalogpages"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/console/customerpages"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/console/moneypages"
	"modelgateway/controlplane/internal/console/nowpages"
	"modelgateway/controlplane/internal/console/systempages"
)

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// routes are those of all sections, with their methods and a path that each matches.
func routes() (all []struct{ method, path, scope string }) {
	for _, section := range []kit.Section{nowpages.Section(), customerpages.Section(""), catalogpages.Section(), moneypages.Section(), systempages.Section()} {
		for _, r := range section.Routes {
			method, pattern, _ := strings.Cut(r.Pattern, " ")
			path := wildcard.ReplaceAllString(strings.ReplaceAll(pattern, "{$}", ""), "x")
			all = append(all, struct{ method, path, scope string }{method, path, r.Scope})
		}
	}
	return all
}

func TestNoPageIsShownWithoutItsScope(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	people := map[string]*consoletest.Browser{}
	for _, scope := range []adminclient.Scope{adminclient.ScopeRead, adminclient.ScopeObserve, adminclient.ScopeCredits, adminclient.ScopeKeysReveal} {
		_, token := w.NewToken(scope)
		people[string(scope)] = w.SignedIn(token)
	}
	changing := []string{kit.Operator, kit.Cabinet, kit.Credits, kit.KeysReveal}
	refused := func(who, method, path string) {
		t.Helper()
		form := url.Values{"step": {"do"}, "confirmation": {"x"}, "idempotency_key": {"k"}}
		if method == http.MethodGet {
			form = nil
		}
		if answer, page := people[who].Send(method, path, form, nil); answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s with %s: got %d %.300s", method, path, who, answer.StatusCode, page)
		}
	}
	for _, r := range routes() {
		switch {
		case r.method == http.MethodPost && !slices.Contains(changing, r.scope):
			t.Errorf("%s changes something with the scope %q", r.path, r.scope)
		case r.method == http.MethodPost || slices.Contains(changing, r.scope):
			refused("observe", r.method, r.path)
			refused("read", r.method, r.path)
		case r.scope == kit.Observe:
			refused("read", r.method, r.path)
			refused("credits", r.method, r.path)
		case r.scope == kit.Read:
			refused("keys.reveal", r.method, r.path)
		default:
			t.Errorf("%s is shown with the scope %q", r.path, r.scope)
		}
		if r.scope == kit.KeysReveal {
			refused("credits", r.method, r.path)
		}
		if r.scope == kit.Credits {
			refused("keys.reveal", r.method, r.path)
		}
	}
}
