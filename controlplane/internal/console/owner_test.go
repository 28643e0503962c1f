package console_test

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// Who looks for a customer knows a name or an id of another system, not ours.
func TestFiltersTakeNames(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	made, err := w.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Harbour Ltd", ExternalID: new("demo-4")})
	servertest.Check(t, err)
	issued, err := w.API.CreateKey(t.Context(), made.Value.ID, nil, adminclient.KeyCreate{Name: "ci"})
	servertest.Check(t, err)
	w.Customer("Harbour Hotel")
	_, other := w.Customer("Other")
	id, others := w.Request(issued.Value, event.Completed, price.Usage{}), w.Request(other, event.Completed, price.Usage{})
	b := w.SignedIn(servertest.BootstrapToken)
	for _, filter := range []string{
		"account_id=Harbour+Ltd", "account_id=harbour+ltd", "account_id=demo-4", "account_id=" + made.Value.ID, "key_id=ci",
		"account_id=" + url.QueryEscape("Harbour Ltd · "+made.Value.ID),
	} {
		answer, page := b.Get("/console/requests?" + filter)
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, id) || strings.Contains(page, others) {
			t.Errorf("%s: got %d %s", filter, answer.StatusCode, page)
		}
		if want := `value="Harbour Ltd · ` + made.Value.ID; strings.HasPrefix(filter, "account_id") && !strings.Contains(page, want) {
			t.Errorf("%s: the filter does not show the name: %s", filter, page)
		}
	}
	for _, path := range []string{"live", "refusals", "usage", "events", "video-jobs", "explain"} {
		answer, page := b.Get("/console/" + path + "?account_id=demo-4")
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, "Harbour Ltd · "+made.Value.ID) {
			t.Errorf("%s: got %d %s", path, answer.StatusCode, page)
		}
	}
}

// A project is found by its name and its reference, in the search and in filters.
func TestProjectsAreFoundByName(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, _ := w.Customer("Example")
	made, err := w.API.CreateProject(t.Context(), a.ID, nil, adminclient.ProjectCreate{Name: "The Web Shop", ExternalID: new("shop-7")})
	servertest.Check(t, err)
	b := w.SignedIn(servertest.BootstrapToken)
	for _, text := range []string{"web shop", "shop-7"} {
		if _, page := b.Post("/console/search", "q", text); !strings.Contains(page, `href="/console/projects/`+made.Value.ID) {
			t.Errorf("the search for %s: %s", text, page)
		}
		for _, path := range []string{"usage", "requests", "refusals", "live"} {
			answer, page := b.Get("/console/" + path + "?project_id=" + url.QueryEscape(text))
			if answer.StatusCode != http.StatusOK || !strings.Contains(page, `value="The Web Shop · `+made.Value.ID) {
				t.Errorf("%s of %s: got %d %s", path, text, answer.StatusCode, page)
			}
		}
	}
	for _, path := range []string{"/console/usage?", "/console/requests?", "/console/refusals?"} {
		answer, page := b.Get(path + "project_id=none&account_id=" + a.ID)
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, `name="project_id" value="none"`) {
			t.Errorf("%s of no project: got %d %s", path, answer.StatusCode, page)
		}
		answer, page = b.Get(path + "project_id=none")
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, "can be none only beside account_id") {
			t.Errorf("%s of no project of any account: got %d %s", path, answer.StatusCode, page)
		}
	}
	for _, id := range []string{made.Value.ID, "lim_0192f0c1d2e37a4b8c5d6e7f8091a2b7"} {
		if answer, _ := b.Post("/console/search", "q", id); answer.StatusCode != http.StatusSeeOther || !strings.HasSuffix(answer.Header.Get("Location"), id) {
			t.Errorf("the search for %s: got %d to %q", id, answer.StatusCode, answer.Header.Get("Location"))
		}
	}
}

// A filter that is not valid leads to no dead end: the form and the other filters stay.
func TestFilterThatIsNotValidKeepsTheForm(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.Customer("Harbour Ltd")
	w.Customer("Harbour Hotel")
	b := w.SignedIn(servertest.BootstrapToken)
	for query, want := range map[string]string{
		"account_id=Harbor&model=m":       "“Harbor”: no account has this name, external id or id.",
		"account_id=Harbour&model=m":      "“Harbour”: this fits several: Harbour ",
		"from=yesterday&model=m":          "“yesterday”: must be a time such as",
		"request_id_prefix=xyz&model=m":   "“xyz”: is not the beginning of the id of a request.",
		"account_id=acc_1&model=m&to=now": "“acc_1”: no account has this name",
	} {
		answer, page := b.Get("/console/requests?" + query)
		page = html.UnescapeString(page)
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(page, want) || !strings.Contains(page, `name="model" value="m"`) {
			t.Errorf("%s: got %d %s; want the form and %q", query, answer.StatusCode, page, want)
		}
	}
	if answer, _ := b.Get("/console/requests/export?account_id=Harbor"); answer.StatusCode != http.StatusBadRequest || answer.Header.Get("Content-Disposition") != "" {
		t.Errorf("an export for nobody: got %d with %v", answer.StatusCode, answer.Header)
	}
}
