package nowpages_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
)

func TestLiveViewStreamsRequestsAsTheyEnd(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, token := w.NewToken(adminclient.ScopeObserve)
	b := w.SignedIn(token)
	if answer, page := b.Get("/console/live?model=a%26b"); answer.StatusCode != http.StatusOK || !strings.Contains(page, `data-stream="/console/live/stream?model=a%26b"`) {
		t.Errorf("the page: got %d %s", answer.StatusCode, page)
	}
	if _, page := b.Get("/console/live?project_id=none"); !strings.Contains(page, `data-stream="/console/live/stream?project_id=none"`) ||
		!strings.Contains(page, `name="project_id" value="none"`) || !strings.Contains(page, "--project-id=none") && !strings.Contains(page, "--project-id none") {
		t.Errorf("the page of no project: got %s", page)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/console/live/stream?project_id=none", nil)
	servertest.Check(t, err)
	answer, err := b.Client.Do(r)
	servertest.Check(t, err)
	defer func() { _ = answer.Body.Close() }()
	if got := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("the stream: got %d %s", answer.StatusCode, got)
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "req_refused") {
			return
		}
	}
	t.Errorf("the stream ended without the request: %v", lines.Err())
}

func TestLiveViewRefusesAFilterThatIsNoStatus(t *testing.T) {
	t.Parallel()
	b := consoletest.Start(t).SignedIn(servertest.BootstrapToken)
	for _, class := range []string{"x", "9"} {
		if answer, page := b.Get("/console/live/stream?status_class=" + class); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("status class %s: got %d %s", class, answer.StatusCode, page)
		}
	}
}

// The breaker of a route that cannot be called is closed, which is green; that says nothing of the route.
func TestRouteWithoutAUsableCredentialIsNotShownAsHealthy(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	w.OneProxy()
	b := w.SignedIn(servertest.BootstrapToken)
	const word = "no usable credential"
	if _, page := b.Get("/console/routes"); strings.Contains(page, word) {
		t.Errorf("the credentials are fine, and the page says: %s", page)
	}
	w.SQL("update provider_credentials set refused_at = now(), refused_reason = 'key_rejected'")
	for _, path := range []string{"/console/routes", "/console/models/example-small", "/console/providers/acme"} {
		if _, page := b.Get(path); !strings.Contains(page, word) {
			t.Errorf("%s does not say that no request can be sent: %s", path, page)
		}
	}
}

func TestRoutesAreNotShownAsHealthyWhileNoProxyIsHeard(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	b := w.SignedIn(servertest.BootstrapToken)
	for _, path := range []string{"/console/routes", "/console/models/example-small", "/console/providers/acme"} {
		answer, page := b.Get(path)
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, "small-main") || !strings.Contains(page, "0 of 0 proxies are heard") || !strings.Contains(page, "not known") {
			t.Errorf("%s: got %d %s", path, answer.StatusCode, page)
		}
	}
	if answer, page := b.Get("/console/routes/small-main/reset"); answer.StatusCode != http.StatusOK || !strings.Contains(page, "Reset the route") {
		t.Errorf("the form: got %d %s", answer.StatusCode, page)
	}
	_, token := w.NewToken(adminclient.ScopeRead)
	reader := w.SignedIn(token)
	if answer, _ := reader.Get("/console/routes"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("without the scope observe: got %d", answer.StatusCode)
	}
	for _, path := range []string{"/console/models/example-small", "/console/providers/acme"} {
		if answer, page := reader.Get(path); answer.StatusCode != http.StatusOK || strings.Contains(page, "proxies are heard") {
			t.Errorf("%s without the scope observe: got %d %s", path, answer.StatusCode, page)
		}
	}
}
