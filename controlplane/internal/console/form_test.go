package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
)

// hidden returns the value of a hidden input of a page.
func hidden(t testing.TB, page, name string) string {
	t.Helper()
	found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no hidden %s: %s", name, page)
	}
	return strings.NewReplacer("&#34;", `"`, "&amp;", "&").Replace(found[1])
}

// fill opens a form and sends it with values, and with those that the form has hidden.
func (b *browser) fill(path string, values ...string) (*http.Response, string) {
	b.w.t.Helper()
	_, page := b.get(path)
	form := url.Values{"idempotency_key": {hidden(b.w.t, page, "idempotency_key")}, "step": {"do"}}
	if strings.Contains(page, `name="if_match"`) {
		form.Set("if_match", hidden(b.w.t, page, "if_match"))
	}
	for i := 0; i < len(values); i += 2 {
		form.Add(values[i], values[i+1])
	}
	return b.send(http.MethodPost, path, form, nil)
}

func TestFormMakesAChangeOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.signedIn(bootstrapToken)
	_, page := b.get("/console/accounts/new?name=Example")
	if !strings.Contains(page, `value="Example"`) {
		t.Error("the form does not have the value of its link")
	}
	values := []string{"name", "Example", "idempotency_key", hidden(t, page, "idempotency_key"), "step", "do"}
	first, _ := b.post("/console/accounts/new", values...)
	second, _ := b.post("/console/accounts/new", values...)
	at := first.Header.Get("Location")
	if first.StatusCode != http.StatusSeeOther || !strings.HasPrefix(at, "/console/accounts/acc_") || second.Header.Get("Location") != at {
		t.Fatalf("got %d to %q, again %d to %q; want the same account twice", first.StatusCode, at, second.StatusCode, second.Header.Get("Location"))
	}
	all, err := w.api.ListAccounts(t.Context(), nil)
	check(t, err)
	if len(all.Value.Data) != 1 {
		t.Errorf("got %d accounts; want 1", len(all.Value.Data))
	}
	if _, page := b.get(at); !strings.Contains(page, "The account was created.") {
		t.Error("the page after the form has no notice")
	}
	if _, page := b.get(at); strings.Contains(page, "The account was created.") {
		t.Error("the notice is shown again")
	}
}

func TestFormShowsTheProblemsOfFieldsInPlace(t *testing.T) {
	t.Parallel()
	b := setup(t).signedIn(bootstrapToken)
	answer, page := b.fill("/console/accounts/new", "name", "Example", "price_multiplier", "-1", "max_concurrent_requests", "many", "model_multipliers", "a b c")
	if answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, `value="Example"`) || !strings.Contains(page, "must be an integer") {
		t.Errorf("got %d %s; want the form with its values and the problem", answer.StatusCode, page)
	}
	answer, page = b.fill("/console/accounts/new", "name", "Example", "price_multiplier", "-1")
	if answer.StatusCode != http.StatusBadRequest || !regexp.MustCompile(`name="price_multiplier"[^>]*aria-invalid[^<]*></span><span class="field-error"`).MatchString(page) {
		t.Errorf("got %d %s; want the problem at its field", answer.StatusCode, page)
	}
}

// A change that was made while the form was open is not overwritten unseen.
func TestFormRefusesToOverwriteALaterChange(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.signedIn(bootstrapToken)
	made, err := w.api.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "one"})
	check(t, err)
	path := "/console/accounts/" + made.Value.ID + "/edit"
	_, page := b.get(path)
	values := []string{"name", "two", "max_concurrent_requests", "7", "if_match", hidden(t, page, "if_match"), "step", "do"}
	_, err = w.api.UpdateAccount(t.Context(), made.Value.ID, nil, adminclient.AccountPatch{Name: new("between")})
	check(t, err)
	answer, page := b.post(path, values...)
	if answer.StatusCode != http.StatusPreconditionFailed || !strings.Contains(page, `value="two"`) || !strings.Contains(page, "now: <b>between</b>") {
		t.Fatalf("got %d %s; want the form with both values", answer.StatusCode, page)
	}
	values[5] = hidden(t, page, "if_match")
	if answer, page := b.post(path, values...); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("sent again: got %d %s", answer.StatusCode, page)
	}
	now, err := w.api.GetAccount(t.Context(), made.Value.ID)
	check(t, err)
	if now.Value.Name != "two" || now.Value.MaxConcurrentRequests != 7 {
		t.Errorf("got %+v", now.Value)
	}
}

func TestFormIsOnlyForThoseWhoMay(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, token := w.token(adminclient.ScopeObserve)
	b := w.signedIn(token)
	if _, page := b.get("/console/accounts"); strings.Contains(page, "Create account") {
		t.Error("a person who may only look sees the button")
	}
	if answer, _ := b.post("/console/accounts/new", "name", "Example", "step", "do"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a form sent by hand: got %d; want 403", answer.StatusCode)
	}
}

func TestPartsAreShown(t *testing.T) {
	t.Parallel()
	if answer, page := setup(t).signedIn(bootstrapToken).get("/console/parts"); answer.StatusCode != http.StatusOK {
		t.Errorf("got %d %s", answer.StatusCode, page)
	}
}
