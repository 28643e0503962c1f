package customerpages_test

import (
	"html"
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestConnectFillsInTheExamplesOfAModelAndAKey(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	a, k := w.Customer("Example Ltd")
	b := w.SignedIn(servertest.BootstrapToken)
	answer, page := b.Get("/console/connect?key_id=" + k.ID)
	page = html.UnescapeString(page)
	for _, want := range []string{"Example Ltd", "…" + k.Hint, `"model": "example-small"`, "/v1/chat/completions", "OpenAI SDK, Python", "Qwen Code", "25.000000001"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, not := range []string{"https://HOST", `"MODEL"`, "Claude Code", "Try it", k.Secret} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
	if answer.StatusCode != http.StatusOK || t.Failed() {
		t.Fatalf("got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get("/console/connect?account_id=" + a.ID); !strings.Contains(page, "…"+k.Hint) {
		t.Errorf("the only key of an account is not chosen: %s", page)
	}
	if answer, page := b.Get("/console/connect"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "Choose an account") {
		t.Errorf("without a choice: got %d %s", answer.StatusCode, page)
	}
	if answer, _ := b.Get("/console/connect?key_id=key_unknown"); answer.StatusCode/100 != 4 {
		t.Errorf("an unknown key: got %d", answer.StatusCode)
	}
}

func TestConnectTellsWhichRequestsWouldBeRefused(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	poor, err := w.API.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "Poor"})
	servertest.Check(t, err)
	key, err := w.API.CreateKey(t.Context(), poor.Value.ID, nil, adminclient.KeyCreate{Name: "demo"})
	servertest.Check(t, err)
	_, err = w.API.RevokeKey(t.Context(), key.Value.ID, nil)
	servertest.Check(t, err)
	_, page := w.SignedIn(servertest.BootstrapToken).Get("/console/connect?key_id=" + key.Value.ID)
	for _, want := range []string{"The account has no money", "The key is revoked"} {
		if !strings.Contains(page, want) || strings.Contains(page, "Try it") {
			t.Errorf("the page has no %q, or offers a request: %s", want, page)
		}
	}
}

func TestOnlyADemoKeyIsTried(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	a, other := w.Customer("Example Ltd")
	made, err := w.API.CreateKey(t.Context(), a.ID, nil, adminclient.KeyCreate{Name: "demo"})
	servertest.Check(t, err)
	b := w.SignedIn(servertest.BootstrapToken)
	try := "/console/keys/" + made.Value.ID + "/try"
	if _, page := b.Get("/console/connect?key_id=" + made.Value.ID); !strings.Contains(page, try) {
		t.Errorf("the page has no link to %s: %s", try, page)
	}
	answer, page := b.Post(try, "model", "example-small", "step", "do")
	page = html.UnescapeString(page)
	for _, want := range []string{"/console/requests/req_tried", `"authorized": true`, `"path": "/v1/chat/completions"`, `"model": "example-small"`} {
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("got %d without %q: %s", answer.StatusCode, want, page)
		}
	}
	if strings.Contains(page, made.Value.Secret) {
		t.Error("the page shows the secret")
	}
	audit, err := w.API.ListAudit(t.Context(), &adminclient.ListAuditParams{Object: &made.Value.ID, Limit: new(1)})
	servertest.Check(t, err)
	if got := audit.Value.Data; len(got) != 1 || got[0].Action != "key.reveal" {
		t.Errorf("the last change of the key is %+v; want key.reveal", got)
	}
	if answer, _ := b.Post(try, "model", "unknown", "step", "do"); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown model: got %d", answer.StatusCode)
	}
	if answer, _ := b.Get("/console/keys/" + other.ID + "/try"); answer.StatusCode != http.StatusNotFound {
		t.Errorf("a key with another name: got %d", answer.StatusCode)
	}
	_, token := w.NewToken(adminclient.ScopeCabinet)
	if answer, _ := w.SignedIn(token).Get(try); answer.StatusCode != http.StatusForbidden {
		t.Errorf("without the scope keys.reveal: got %d", answer.StatusCode)
	}
}
