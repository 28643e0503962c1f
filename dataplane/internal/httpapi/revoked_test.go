package httpapi_test

import (
	"net/http"
	"testing"

	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/event"
	"modelgateway/shared/wire"
)

// The proxy is cut off, and its session is over: the revocation counts as effective, and the proxy cannot know it.
func TestWithoutAValidSessionKeysAreNotAccepted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, chatJSON), videoProvider("completed"))
	g.plane.set(func(p *controlPlane) { p.balance.Status = wire.Done })
	if got := g.send(http.MethodGet, "/v1/models", ""); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	g.session.Store(session.Begin(sessionID, "boot", 0))
	for _, path := range []string{"/v1/models", "/v1/balance", "/v1/videos/video_1", "/v1/videos/video_1/content"} {
		if got := g.send(http.MethodGet, path, "").apiError(t); got.Status != 503 || got.Code != "service_unavailable" {
			t.Errorf("%s: got %+v; want 503", path, got)
		}
	}
	if got := g.post("/v1/chat/completions", chatBody).apiError(t); got.Status != 503 || got.Code != "service_unavailable" {
		t.Errorf("generation: got %+v; want 503", got)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+"/v1/models", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	public, err := g.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = public.Body.Close()
	if public.StatusCode != http.StatusOK {
		t.Errorf("models without a key: got %d; want 200", public.StatusCode)
	}
}

// The key is revoked while the first provider has a request, or while the request is recorded as started.
func TestNoProviderIsCalledAfterTheRevocation(t *testing.T) {
	t.Parallel()
	for _, body := range []string{chatBody, chatStreamBody} {
		g := newGateway(t, nil, jsonAnswer(http.StatusOK, chatJSON))
		g.sims[0].setAnswer(func(w http.ResponseWriter, _ *http.Request) {
			g.revoke(g.key)
			w.WriteHeader(http.StatusBadGateway)
		})
		got := g.post("/v1/chat/completions", body).apiError(t)
		if got.Status != 401 || got.Code != "invalid_api_key" {
			t.Errorf("during the first call: got %+v; want 401", got)
		}
		if n := len(g.sims[1].received()); n != 0 {
			t.Errorf("during the first call: the second provider got %d calls; want none", n)
		}
		if e := g.spool.next(t); e.Status != event.Revoked || e.Cost != 0 || e.HTTPStatus != 401 {
			t.Errorf("during the first call: got event %+v", e)
		}

		g = newGateway(t, jsonAnswer(http.StatusOK, chatJSON))
		g.spool.onStart = func() { g.revoke(g.key) }
		got = g.post("/v1/chat/completions", body).apiError(t)
		if got.Status != 401 || got.Code != "invalid_api_key" {
			t.Errorf("before the first call: got %+v; want 401", got)
		}
		if n := len(g.sims[0].received()); n != 0 {
			t.Errorf("before the first call: the provider got %d calls; want none", n)
		}
		if e := g.spool.next(t); e.Status != event.Revoked || e.Cost != 0 {
			t.Errorf("before the first call: got event %+v", e)
		}
	}
}

// The session ends while the first provider has the request: the proxy cannot know any more whether the key is revoked.
func TestNoFurtherProviderIsCalledAfterTheEndOfTheSession(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, jsonAnswer(http.StatusOK, chatJSON))
	g.sims[0].setAnswer(func(w http.ResponseWriter, _ *http.Request) {
		g.session.Store(session.Begin(sessionID, "boot", 0))
		w.WriteHeader(http.StatusBadGateway)
	})
	got := g.post("/v1/chat/completions", chatBody).apiError(t)
	if got.Status != 503 || len(g.sims[1].received()) != 0 {
		t.Errorf("got %+v and %d calls of the second provider; want 503 and none", got, len(g.sims[1].received()))
	}
	if e := g.spool.next(t); e.Status != event.Failed || e.Cost != 0 {
		t.Errorf("got event %+v", e)
	}
}

func TestVideoIsNotCreatedAfterTheRevocation(t *testing.T) {
	t.Parallel()
	g := newGateway(t, videoProvider("queued"))
	g.plane.onVideoCreate = func() { g.revoke(g.key) }
	if got := g.post("/v1/videos", videoBody).apiError(t); got.Status != 401 || got.Code != "invalid_api_key" {
		t.Errorf("got %+v; want 401", got)
	}
	if n := len(g.sims[0].received()); n != 0 {
		t.Errorf("the provider got %d calls; want none", n)
	}
	if v := g.plane.onlyVideo(t); v.Status != event.VideoFailed {
		t.Errorf("the job is %s; want failed", v.Status)
	}
}
