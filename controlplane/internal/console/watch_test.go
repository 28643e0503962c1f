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

// Everybody sees the banners that one person's page has read: a person who leaves must not make them say that nothing can be
// read.
func TestBannersAreReadWholeThoughTheReaderLeaves(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		leave()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"data":[]}`))
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
	health := w.health(&kit.Request{Request: r, Session: session, API: client})
	if len(health.Banners) != 1 || health.Banners[0].Text != "No proxy is registered: no request can be served." {
		t.Errorf("got %+v; want the banner of an empty fleet alone", health.Banners)
	}
}
