package console_test

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
)

func TestEveryPageTellsWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, _ := w.account("Example")
	w.quarantine(a.ID)
	b := w.signedIn(bootstrapToken)
	_, page := b.get("/console/accounts")
	for _, want := range []string{"No proxy is registered", "A usage event waits in quarantine", "2 to look at"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	_, token := w.token(adminclient.ScopeRead)
	if _, page := w.signedIn(token).get("/console/accounts"); strings.Contains(page, "quarantine") || !strings.Contains(page, "read only") {
		t.Errorf("a person who may not observe: %s", page)
	}
}

func TestSearchFindsObjectsAndPages(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, k := w.account("Example Ltd")
	b := w.signedIn(bootstrapToken)
	for query, want := range map[string]string{"exam": `href="/console/accounts/` + a.ID + `"`, "refus": `href="/console/refusals"`, "req_zz": "Nothing matches", "nothing": "Nothing matches"} {
		if answer, page := b.post("/console/search", "q", query); answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%q: got %d without %q: %s", query, answer.StatusCode, want, page)
		}
	}
	if answer, page := b.post("/console/search", "q", k.Secret); answer.StatusCode != http.StatusOK || !strings.Contains(page, `href="/console/keys/`+k.ID+`"`) || strings.Contains(page, k.Secret) {
		t.Errorf("the text of a key: got %d %s; want its page without the text", answer.StatusCode, page)
	}
	for _, id := range []string{a.ID, k.ID} {
		if answer, _ := b.post("/console/search", "q", " "+id+" "); !strings.HasSuffix(answer.Header.Get("Location"), "/"+id) {
			t.Errorf("%s leads to %q", id, answer.Header.Get("Location"))
		}
	}
}
