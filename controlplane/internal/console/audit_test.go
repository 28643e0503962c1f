package console_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

// audited returns the number of rows of the audit log.
func audited(w *consoletest.World) (rows int) {
	w.T.Helper()
	servertest.Check(w.T, w.DB.Pool().QueryRow(w.T.Context(), "select count(*) from audit_log").Scan(&rows))
	return rows
}

// Whoever is not known, and who may only read, cannot fill the audit log, whatever they send and however often.
func TestRequestsThatAreRefusedWriteNoAuditRows(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	a, k := w.Customer("Example")
	_, token := w.NewToken(adminclient.ScopeObserve)
	reader := w.SignedIn(token)
	list, err := os.ReadFile("testdata/routes.txt")
	servertest.Check(t, err)
	names := strings.NewReplacer("{id}", a.ID, "{route}", "small-main", "{price}", "prc_1", "{name}", "main", "{month}", "2026-01", "{credential}", "main")

	before, sent := audited(w), 0
	for route := range strings.Lines(string(list)) {
		method, path, ok := strings.Cut(strings.TrimSpace(route), " ")
		if !ok || strings.HasSuffix(path, "/stream") || strings.Contains(path, "sign-out") {
			continue
		}
		path = names.Replace(path)
		anyone := w.Browser()
		anyone.Send(method, path, nil, nil)
		anyone.Send(method, path+"?code=made-up&state=made-up&error=denied", nil, nil)
		sent += 2
		if method == http.MethodPost {
			answer, page := reader.Post(path, "step", "do", "name", "x", "confirmation", "x", "q", "x")
			sent++
			if answer.StatusCode < 400 && !strings.Contains(path, "search") && !strings.Contains(path, "sign-in") {
				t.Errorf("%s of a reader: got %d %s", route, answer.StatusCode, page)
			}
		}
	}
	for range 50 {
		w.Browser().Post("/console/sign-in", "token", "made up", "return_to", "/console/")
		sent++
	}
	client, err := adminclient.New(w.URL, token)
	servertest.Check(t, err)
	for range 20 {
		if _, err := client.RevealKey(t.Context(), k.ID); err == nil {
			t.Fatal("a reader has revealed a key")
		}
		if _, err := client.CreateAccount(t.Context(), nil, adminclient.AccountCreate{Name: "x"}); err == nil {
			t.Fatal("a reader has created an account")
		}
		sent += 2
	}
	if rows := audited(w) - before; rows != 0 || sent < 200 {
		t.Errorf("%d requests wrote %d audit rows; want none", sent, rows)
	}
}
