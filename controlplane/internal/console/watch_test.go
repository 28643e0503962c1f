package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/controlplane/internal/signin"
)

// Everybody sees the list that one person's page has read: a person who leaves must not make it say that nothing can be
// read.
func TestNeedsAreReadWholeThoughTheReaderLeaves(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		leave()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"data":[],"findings":[]}`))
	}))
	t.Cleanup(api.Close)
	client, err := adminclient.New(api.URL, "token")
	if err != nil {
		t.Fatal(err)
	}
	session := &signin.Session{}
	session.Principal.Scopes = append(session.Principal.Scopes, "observe")
	w := &watch{api: client, now: time.Now}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/console/", http.NoBody)
	w.health(&kit.Request{Request: r, Session: session, API: client}) // leaves before the list is read
	health := w.health(&kit.Request{Request: r.WithContext(t.Context()), Session: session, API: client})
	if len(health.Needs) != 0 {
		t.Errorf("got %+v; want nothing that cannot be read", health.Needs)
	}
}
