package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestFormMakesAChangeOnce(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	b := w.SignedIn(servertest.BootstrapToken)
	_, page := b.Get("/console/accounts/new?name=Example")
	if !strings.Contains(page, `value="Example"`) {
		t.Error("the form does not have the value of its link")
	}
	values := []string{"name", "Example", "idempotency_key", consoletest.Hidden(t, page, "idempotency_key"), "step", "do"}
	first, _ := b.Post("/console/accounts/new", values...)
	second, _ := b.Post("/console/accounts/new", values...)
	at := first.Header.Get("Location")
	if first.StatusCode != http.StatusSeeOther || !strings.HasPrefix(at, "/console/accounts/acc_") || second.Header.Get("Location") != at {
		t.Fatalf("got %d to %q, again %d to %q; want the same account twice", first.StatusCode, at, second.StatusCode, second.Header.Get("Location"))
	}
	all, err := w.API.ListAccounts(t.Context(), nil)
	servertest.Check(t, err)
	if len(all.Value.Data) != 1 {
		t.Errorf("got %d accounts; want 1", len(all.Value.Data))
	}
	if _, page := b.Get(at); !strings.Contains(page, "The account was created.") {
		t.Error("the page after the form has no notice")
	}
	if _, page := b.Get(at); strings.Contains(page, "The account was created.") {
		t.Error("the notice is shown again")
	}
}

func TestFormShowsTheProblemsOfFieldsInPlace(t *testing.T) {
	t.Parallel()
	b := consoletest.Start(t).SignedIn(servertest.BootstrapToken)
	answer, page := b.Fill("/console/accounts/new", "name", "Example", "price_multiplier", "-1", "max_concurrent_requests", "many", "model_multipliers", "a b c")
	if answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, `value="Example"`) || !strings.Contains(page, "must be an integer") {
		t.Errorf("got %d %s; want the form with its values and the problem", answer.StatusCode, page)
	}
	answer, page = b.Fill("/console/accounts/new", "name", "Example", "price_multiplier", "-1")
	if answer.StatusCode != http.StatusBadRequest || !regexp.MustCompile(`name="price_multiplier"[^>]*aria-invalid[^<]*></span><span class="field-error"`).MatchString(page) {
		t.Errorf("got %d %s; want the problem at its field", answer.StatusCode, page)
	}
}

// A change that was made while the form was open is not overwritten unseen.
func TestFormRefusesToOverwriteALaterChange(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	b := w.SignedIn(servertest.BootstrapToken)
	made, err := w.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "one"})
	servertest.Check(t, err)
	path := "/console/accounts/" + made.Value.ID + "/edit"
	_, page := b.Get(path)
	values := []string{"name", "two", "max_concurrent_requests", "7", "if_match", consoletest.Hidden(t, page, "if_match"), "step", "do"}
	_, err = w.API.UpdateAccount(t.Context(), made.Value.ID, nil, adminclient.AccountPatch{Name: new("between")})
	servertest.Check(t, err)
	answer, page := b.Post(path, values...)
	if answer.StatusCode != http.StatusPreconditionFailed || !strings.Contains(page, `value="two"`) || !strings.Contains(page, "now: <b>between</b>") {
		t.Fatalf("got %d %s; want the form with both values", answer.StatusCode, page)
	}
	values[5] = consoletest.Hidden(t, page, "if_match")
	if answer, page := b.Post(path, values...); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("sent again: got %d %s", answer.StatusCode, page)
	}
	now, err := w.API.GetAccount(t.Context(), made.Value.ID)
	servertest.Check(t, err)
	if now.Value.Name != "two" || now.Value.MaxConcurrentRequests != 7 {
		t.Errorf("got %+v", now.Value)
	}
}

func TestFormIsOnlyForThoseWhoMay(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, token := w.NewToken(adminclient.ScopeObserve)
	b := w.SignedIn(token)
	if _, page := b.Get("/console/accounts"); strings.Contains(page, "Create account") {
		t.Error("a person who may only look sees the button")
	}
	if answer, _ := b.Post("/console/accounts/new", "name", "Example", "step", "do"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a form sent by hand: got %d; want 403", answer.StatusCode)
	}
}

func TestPartsAreShown(t *testing.T) {
	t.Parallel()
	if answer, page := consoletest.Start(t).SignedIn(servertest.BootstrapToken).Get("/console/parts"); answer.StatusCode != http.StatusOK {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
}
