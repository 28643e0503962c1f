package console

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/signin"
)

var since = regexp.MustCompile(`The database has not answered since <time datetime="([^"]*)"`)

// The session may have been checked just before the database went away, and other failures are not those of the database.
func TestPageThatFailsTellsSinceWhenTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	c, err := New(Config{API: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	fail := func(session *signin.Session, err error) (string, *httptest.ResponseRecorder) {
		t.Helper()
		w := httptest.NewRecorder()
		c.fail(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console/accounts", http.NoBody), session, err)
		found := since.FindStringSubmatch(w.Body.String())
		if found == nil {
			return "", w
		}
		return found[1], w
	}
	away := &adminclient.Error{StatusCode: http.StatusServiceUnavailable, Code: "database_unavailable", Problem: adminclient.Problem{Title: "The database is unavailable. Retry later."}}
	first, w := fail(&signin.Session{}, away)
	if first == "" || w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "data-follow") {
		t.Errorf("an operation without the database: got %d %s", w.Code, w.Body)
	}
	if again, w := fail(nil, errors.New("no session can be read")); again != first {
		t.Errorf("the next page: got %d %s; want the time of the first", w.Code, w.Body)
	}
	other := &adminclient.Error{StatusCode: http.StatusInternalServerError, Code: "internal", Problem: adminclient.Problem{Title: "Internal error"}}
	if at, w := fail(&signin.Session{}, other); at != "" || w.Code != http.StatusInternalServerError {
		t.Errorf("another failure: got %d %s; want nothing of the database", w.Code, w.Body)
	}
}
