package console_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/shared/pulse"
)

func TestLiveDataIsKeptWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.catalog()
	w.live.Receive(&pulse.Report{V: pulse.Version, Proxy: "proxy-1", Process: "p1", InFlight: map[string]int64{"/v1/chat/completions": 7}})
	b := w.signedIn(bootstrapToken)
	if answer, _ := b.get("/console/"); answer.StatusCode != http.StatusOK {
		t.Fatalf("got %d", answer.StatusCode)
	}
	start := pgtest.Stop(t, w.pool)
	answer, page := b.get("/console/")
	for _, want := range []string{
		"The database has not answered since <time", "Only live data is shown", `<span>In flight</span><b>7</b>`, "1 of 1", "The charts are read from the database",
		"read at ", "What has changed since is not known",
	} {
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("the overview: got %d without %q: %s", answer.StatusCode, want, page)
		}
	}
	answer, page = b.get("/console/live")
	if answer.StatusCode != http.StatusOK || !strings.Contains(page, "The database has not answered since <time") || !strings.Contains(page, `data-follow`) {
		t.Errorf("the live view: got %d %s", answer.StatusCode, page)
	}
	if line := streamed(b); !strings.Contains(line, "req_refused") {
		t.Errorf("the stream has no request: %q", line)
	}
	answer, page = b.get("/console/routes")
	if answer.StatusCode != http.StatusOK || !strings.Contains(page, "The routes are those of <time") || !strings.Contains(page, "example-small") {
		t.Errorf("the routes: got %d %s; want those of before", answer.StatusCode, page)
	}
	for _, path := range []string{"/console/accounts", "/console/access"} {
		if answer, page := b.get(path); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The database has not answered since <time") {
			t.Errorf("%s: got %d %s; want 503 since when", path, answer.StatusCode, page)
		}
	}
	if answer, _ := b.post("/console/maintenance/close?scope=system", "step", "do", "confirmation", "the whole system"); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a change: got %d; want 503", answer.StatusCode)
	}
	start()
	answer, page = b.get("/console/")
	if answer.StatusCode != http.StatusOK || strings.Contains(page, "has not answered") || !strings.Contains(page, "Requests by status") {
		t.Errorf("after the outage: got %d %s", answer.StatusCode, page)
	}
	if answer, page := b.get("/console/routes"); answer.StatusCode != http.StatusOK || strings.Contains(page, "The routes are those of") {
		t.Errorf("the routes after the outage: got %d %s", answer.StatusCode, page)
	}
}

// streamed returns the first line of the live stream about a request.
func streamed(b *browser) string {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodGet, b.w.url+"/console/live/stream", nil)
	check(b.w.t, err)
	answer, err := b.client.Do(r)
	check(b.w.t, err)
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
	w := setup(t)
	_, token := w.token(adminclient.ScopeRead)
	reader, observer, gone, stranger := w.signedIn(token), w.signedIn(bootstrapToken), w.signedIn(bootstrapToken), w.browser()
	for _, b := range []*browser{reader, observer, gone} {
		b.get("/console/")
	}
	gone.post("/console/sign-out")
	start := pgtest.Stop(t, w.pool)
	defer start()
	if answer, page := reader.get("/console/"); answer.StatusCode != http.StatusOK || strings.Contains(page, "In flight") {
		t.Errorf("who may not observe: got %d %s", answer.StatusCode, page)
	}
	if answer, _ := reader.get("/console/live"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("the live view without the scope observe: got %d", answer.StatusCode)
	}
	for name, b := range map[string]*browser{"signed out": gone, "a stranger": stranger} {
		if answer, _ := b.get("/console/live"); answer.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: got %d; want the sign-in page", name, answer.StatusCode)
		}
	}
	if answer, _ := observer.get("/console/live"); answer.StatusCode != http.StatusOK {
		t.Errorf("within the bound: got %d", answer.StatusCode)
	}
	w.later.Store(int64(signin.RememberedFor + time.Second))
	if answer, page := observer.get("/console/live"); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The database has not answered since <time") {
		t.Errorf("after the bound: got %d %s", answer.StatusCode, page)
	}
}

func TestSessionThatHasEndedIsNotRememberedAfterTheOutage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.signedIn(bootstrapToken)
	b.get("/console/live")
	_, err := w.pool.Exec(t.Context(), "update console_sessions set ended_at = now()") // as another control plane does
	check(t, err)
	start := pgtest.Stop(t, w.pool)
	if answer, _ := b.get("/console/live"); answer.StatusCode != http.StatusOK {
		t.Errorf("its end is not known in the outage: got %d", answer.StatusCode)
	}
	start()
	if answer, _ := b.get("/console/live"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("after the outage: got %d; want the sign-in page", answer.StatusCode)
	}
	defer pgtest.Stop(t, w.pool)()
	if answer, _ := b.get("/console/live"); answer.StatusCode == http.StatusOK {
		t.Error("the next outage brings the session back")
	}
}
