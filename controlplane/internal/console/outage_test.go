package console_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/consoletest"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/shared/pulse"
)

func TestLiveDataIsKeptWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	w.SmallCatalog()
	w.Live.Receive(&pulse.Report{V: pulse.Version, Proxy: "proxy-1", Process: "p1", InFlight: map[string]int64{"/v1/chat/completions": 7}})
	b := w.SignedIn(servertest.BootstrapToken)
	if answer, _ := b.Get("/console/"); answer.StatusCode != http.StatusOK {
		t.Fatalf("got %d", answer.StatusCode)
	}
	start := pgtest.Stop(t, w.DB.Pool())
	answer, page := b.Get("/console/")
	for _, want := range []string{
		"The database has not answered since <time", "Only live data is shown", `<span>In flight</span><b>7</b>`, "1 of 1", "The charts are read from the database",
		"read at ", "What has changed since is not known",
	} {
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("the overview: got %d without %q: %s", answer.StatusCode, want, page)
		}
	}
	answer, page = b.Get("/console/live")
	if answer.StatusCode != http.StatusOK || !strings.Contains(page, "The database has not answered since <time") || !strings.Contains(page, `data-follow`) {
		t.Errorf("the live view: got %d %s", answer.StatusCode, page)
	}
	if line := streamed(b); !strings.Contains(line, "req_refused") {
		t.Errorf("the stream has no request: %q", line)
	}
	answer, page = b.Get("/console/routes")
	if answer.StatusCode != http.StatusOK || !strings.Contains(page, "The routes are those of <time") || !strings.Contains(page, "example-small") {
		t.Errorf("the routes: got %d %s; want those of before", answer.StatusCode, page)
	}
	for _, path := range []string{"/console/accounts", "/console/access"} {
		if answer, page := b.Get(path); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The database has not answered since <time") {
			t.Errorf("%s: got %d %s; want 503 since when", path, answer.StatusCode, page)
		}
	}
	if answer, _ := b.Post("/console/maintenance/close?scope=system", "step", "do", "confirmation", "the whole system"); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a change: got %d; want 503", answer.StatusCode)
	}
	start()
	answer, page = b.Get("/console/")
	if answer.StatusCode != http.StatusOK || strings.Contains(page, "has not answered") || !strings.Contains(page, "Requests by status") {
		t.Errorf("after the outage: got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.Get("/console/routes"); answer.StatusCode != http.StatusOK || strings.Contains(page, "The routes are those of") {
		t.Errorf("the routes after the outage: got %d %s", answer.StatusCode, page)
	}
}

// streamed returns the first line of the live stream about a request.
func streamed(b *consoletest.Browser) string {
	b.World.T.Helper()
	r, err := http.NewRequestWithContext(b.World.T.Context(), http.MethodGet, b.World.URL+"/console/live/stream", nil)
	servertest.Check(b.World.T, err)
	answer, err := b.Client.Do(r)
	servertest.Check(b.World.T, err)
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "request_id") {
			return lines.Text()
		}
	}
	return answer.Status
}

func TestOnlySessionsThatWereCheckedLatelySeeLiveDataInAnOutage(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	_, token := w.NewToken(adminclient.ScopeRead)
	reader, observer, gone, stranger := w.SignedIn(token), w.SignedIn(servertest.BootstrapToken), w.SignedIn(servertest.BootstrapToken), w.Browser()
	for _, b := range []*consoletest.Browser{reader, observer, gone} {
		b.Get("/console/")
	}
	gone.Post("/console/sign-out")
	start := pgtest.Stop(t, w.DB.Pool())
	defer start()
	if answer, page := reader.Get("/console/"); answer.StatusCode != http.StatusOK || strings.Contains(page, "In flight") {
		t.Errorf("who may not observe: got %d %s", answer.StatusCode, page)
	}
	if answer, _ := reader.Get("/console/live"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("the live view without the scope observe: got %d", answer.StatusCode)
	}
	for name, b := range map[string]*consoletest.Browser{"signed out": gone, "a stranger": stranger} {
		if answer, _ := b.Get("/console/live"); answer.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: got %d; want the sign-in page", name, answer.StatusCode)
		}
	}
	if answer, _ := observer.Get("/console/live"); answer.StatusCode != http.StatusOK {
		t.Errorf("within the bound: got %d", answer.StatusCode)
	}
	w.Later.Store(int64(signin.RememberedFor + time.Second))
	if answer, page := observer.Get("/console/live"); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The database has not answered since <time") {
		t.Errorf("after the bound: got %d %s", answer.StatusCode, page)
	}
}

func TestSessionThatHasEndedIsNotRememberedAfterTheOutage(t *testing.T) {
	t.Parallel()
	w := consoletest.Start(t)
	b := w.SignedIn(servertest.BootstrapToken)
	b.Get("/console/live")
	_, err := w.DB.Pool().Exec(t.Context(), "update console_sessions set ended_at = now()") // as another control plane does
	servertest.Check(t, err)
	start := pgtest.Stop(t, w.DB.Pool())
	if answer, _ := b.Get("/console/live"); answer.StatusCode != http.StatusOK {
		t.Errorf("its end is not known in the outage: got %d", answer.StatusCode)
	}
	start()
	if answer, _ := b.Get("/console/live"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("after the outage: got %d; want the sign-in page", answer.StatusCode)
	}
	defer pgtest.Stop(t, w.DB.Pool())()
	if answer, _ := b.Get("/console/live"); answer.StatusCode == http.StatusOK {
		t.Error("the next outage brings the session back")
	}
}
