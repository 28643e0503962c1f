package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/limit"
)

// Postgres and a control plane fail while the creation is at the provider. The client gets the job: on the bus, it has
// the provider's id. It is charged once, when everything works again.
func TestVideoThatItsProviderHasAcceptedIsCreatedThoughItCannotBeRecorded(t *testing.T) {
	t.Parallel()
	for name, busDown := range map[string]bool{"control plane": false, "control plane and bus": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil)
			g.sims[0].setAnswer(func(w http.ResponseWriter, r *http.Request) {
				g.plane.set(func(p *controlPlane) { p.updatesDown, p.backupsDown = true, busDown })
				videoProvider("queued")(w, r)
			})
			created := g.post("/v1/videos", videoBody)
			if created.status != http.StatusAccepted || created.video(t).Status != "queued" {
				t.Fatalf("got %d %s; want 202 with a job", created.status, created.body)
			}
			var kept []event.Video
			g.plane.set(func(p *controlPlane) { kept, p.updatesDown, p.backupsDown = p.backups, false, false })
			if busDown {
				kept = append(kept, <-g.plane.updated) // as soon as it can be stored
			}
			if len(kept) != 1 || kept[0].ID != created.video(t).ID || kept[0].UpstreamID != "up_1" {
				t.Fatalf("stored %+v; want the job with the provider's id", kept)
			}
			g.plane.set(func(p *controlPlane) { p.videos[kept[0].ID] = kept[0] }) // as the control plane does when it reads the job
			g.sims[0].setAnswer(videoProvider("completed"))
			for range 2 {
				if got := g.send(http.MethodGet, "/v1/videos/"+kept[0].ID, ""); got.video(t).Status != "completed" {
					t.Errorf("got %d %s; want a completed job", got.status, got.body)
				}
			}
			if events := g.spool.all(); len(events) != 1 || events[0].Cost != 40 {
				t.Errorf("got charges %+v; want one of 40", events)
			}
		})
	}
}

// A creation that is answered with an error leaves no open job: it has ended, without a reason for operators, since no
// provider was called.
func TestVideoWhoseRecordIsUncertainIsNotSubmitted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, videoProvider("queued"))
	g.plane.set(func(p *controlPlane) { p.createReplyLost = true })
	want := apiError{Status: 503, Code: "service_unavailable", RetryAfter: "1"}
	if diff := cmp.Diff(want, g.post("/v1/videos", videoBody).apiError(t), ignoreTexts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if v := <-g.plane.updated; v.Status != event.VideoFailed || v.Error != "" {
		t.Errorf("the record became %+v; want a failed job without a reason", v)
	}
	if n := len(g.sims[0].received()); n != 0 {
		t.Errorf("the provider got %d requests; want none", n)
	}
}

// The next route cannot be recorded: no provider has the job, and it has ended.
func TestVideoWhoseNextRouteCannotBeRecordedHasEnded(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, videoProvider("queued"))
	g.sims[0].setAnswer(func(w http.ResponseWriter, r *http.Request) {
		g.plane.set(func(p *controlPlane) { p.updatesDown = true })
		jsonAnswer(529, `{"error":{"type":"overloaded_error","message":"Overloaded"}}`)(w, r)
	})
	if got := g.post("/v1/videos", videoBody).apiError(t); got.Status != 503 {
		t.Errorf("got %+v; want 503", got)
	}
	if v := <-g.plane.backedUp; v.Status != event.VideoFailed || v.Error != "" || v.UpstreamID != "" {
		t.Errorf("the bus has %+v; want a failed job without a reason", v)
	}
	if n := len(g.sims[1].received()); n != 0 {
		t.Errorf("the second provider got %d requests; want none", n)
	}
}

// The answer of a creation is lost. Where the provider recognises a repetition, it is made once with the same key.
func TestVideoWhoseAnswerWasLostIsRepeatedOnce(t *testing.T) {
	t.Parallel()
	lost := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	tests := []struct {
		name    string
		repeats bool
		second  http.HandlerFunc
		want    int
		calls   int
		reason  string
	}{
		{"the provider has the job", true, videoProvider("queued"), 202, 2, ""},
		{"the second answer is lost, too", true, lost, 502, 2, "not known"},
		{"the second is refused, and the first may have been accepted", true, jsonAnswer(529, `{"error":{"type":"overloaded_error","message":"Overloaded"}}`), 429, 2, "not known"},
		{"the provider does not recognise repetitions", false, videoProvider("queued"), 502, 1, "not known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGatewayWith(t, options{provider: func(i int, p *catalogkv.Provider) { p.RecognisesRepeats = i == 0 && tt.repeats }}, nil, videoProvider("queued"))
			var calls atomic.Int64
			g.sims[0].setAnswer(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) == 1 {
					lost(w, r)
				}
				tt.second(w, r)
			})
			got := g.post("/v1/videos", videoBody)
			v := g.plane.onlyVideo(t)
			if got.status != tt.want || (v.UpstreamID == "up_1") != (tt.want == 202) || !strings.Contains(v.Error, tt.reason) || (v.Error == "") != (tt.reason == "") {
				t.Errorf("got %d %s, record %+v; want %d", got.status, got.body, v, tt.want)
			}
			received := g.sims[0].received()
			if len(received) != tt.calls || len(g.sims[1].received()) != 0 {
				t.Fatalf("%d and %d calls; want %d and none", len(received), len(g.sims[1].received()), tt.calls)
			}
			for _, call := range received {
				if call.header.Get("Idempotency-Key") != v.ID || call.body != received[0].body {
					t.Errorf("got call %+v; want the same as the first", call)
				}
			}
		})
	}
}

func TestVideoIsRefusedBecauseOfOpenJobs(t *testing.T) {
	t.Parallel()
	g := newGateway(t, videoProvider("queued"))
	for _, tt := range []struct {
		refusal event.VideoRefusal
		want    apiError
		text    string
		headers string
	}{
		{event.VideoRefusal{Reason: event.VideoTooMany, MaxOpen: 3}, apiError{Status: 429, Code: "rate_limit_exceeded", RetryAfter: "10"}, "as many open video jobs as it may have, 3.", "  "},
		{
			event.VideoRefusal{Reason: event.VideoKeyLimit, Scope: limit.Key, LimitID: "key_1", Left: 2e9, Expected: 3e9},
			apiError{Status: 403, Code: "spend_limit_exceeded", Final: true},
			"2.00 remains, they are expected to cost 3.00", "key key_1 ",
		},
		{
			event.VideoRefusal{Reason: event.VideoLimit, Scope: limit.Account, LimitID: "lim_1", ResetsMS: 1792000000999, Left: 2e9, Expected: 3e9},
			apiError{Status: 403, Code: "spend_limit_exceeded", Final: true},
			"The rest of the spend limit lim_1 of this account is needed for open video jobs: 2.00 remains until 2026-10-14T17:46:40Z, they are expected to cost 3.00.",
			"account lim_1 2026-10-14T17:46:40Z",
		},
		{
			event.VideoRefusal{Reason: event.VideoLimit, Scope: limit.Key, LimitID: "lim_2", Left: -1, Expected: 3e9},
			apiError{Status: 403, Code: "spend_limit_exceeded", Final: true},
			"The rest of the spend limit lim_2 of this API key is needed for open video jobs: 0.00 remains, they", "key lim_2 ",
		},
		{
			event.VideoRefusal{Reason: event.VideoLimit, Scope: limit.Project, LimitID: "lim_3", Left: 1, Expected: 3e9},
			apiError{Status: 403, Code: "spend_limit_exceeded", Final: true},
			"The rest of the spend limit lim_3 of this API key's project is needed for open video jobs", "project lim_3 ",
		},
		{
			event.VideoRefusal{Reason: event.VideoLimit, Scope: limit.Account, LimitID: "lim_4", ResetsMS: 1792000000999},
			apiError{Status: 403, Code: "spend_limit_exceeded", Final: true},
			"Nothing is left of the spend limit lim_4 of this account for a video job: 0.00 remains until 2026-10-14T17:46:40Z.",
			"account lim_4 2026-10-14T17:46:40Z",
		},
		{event.VideoRefusal{Reason: event.VideoBalance, Left: -1, Expected: 3e9}, apiError{Status: 402, Code: "insufficient_quota", Final: true}, "0.00 remains, they are expected to cost 3.00", "  "},
		{event.VideoRefusal{Reason: "of a later release"}, apiError{Status: 503, Code: "service_unavailable", RetryAfter: "1"}, "", "  "},
	} {
		g.plane.set(func(p *controlPlane) { p.refusal = &tt.refusal })
		answer := g.post("/v1/videos", videoBody)
		got := answer.apiError(t)
		if diff := cmp.Diff(tt.want, got, ignoreTexts); diff != "" || !strings.Contains(got.Message, tt.text) {
			t.Errorf("%s: got %q (-want +got):\n%s", tt.refusal.Reason, got.Message, diff)
		}
		headers := answer.header.Get("X-Limit-Scope") + " " + answer.header.Get("X-Limit-Id") + " " + answer.header.Get("X-Limit-Resets-At")
		if headers != tt.headers {
			t.Errorf("%s: the headers are %q; want %q", tt.refusal.Reason, headers, tt.headers)
		}
	}
	if len(g.plane.videos) != 0 || len(g.plane.backups) != 0 || len(g.sims[0].received()) != 0 {
		t.Errorf("records %v, backups %v; want nothing, and no call of the provider", g.plane.videos, g.plane.backups)
	}
}

// The control plane compares the expected cost of open jobs with what is left.
func TestVideoJobIsRecordedWithItsExpectedCost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		usual      int64
		seconds    int64
	}{
		{"stated length", videoBody, 12, 4},
		{"default length of the model", `{"model":"video","prompt":"a cat"}`, 12, 12},
		{"default length of the format", `{"model":"video","prompt":"a cat"}`, 0, 4},
	} {
		g := newGatewayWith(t, options{model: func(m *catalogkv.Model) {
			if m.Type == catalogkv.Video {
				m.DefaultSeconds = tt.usual
			}
		}}, jsonAnswer(200, `{"id":"up_1","object":"video","status":"completed"}`))
		if got := g.post("/v1/videos", tt.body); got.status != http.StatusAccepted {
			t.Fatalf("%s: got %d %s", tt.name, got.status, got.body)
		}
		if v := g.plane.onlyVideo(t); v.Seconds != tt.seconds || int64(v.ExpectedCost) != 10*tt.seconds {
			t.Errorf("%s: recorded %d seconds for %d; want %d for %d", tt.name, v.Seconds, v.ExpectedCost, tt.seconds, 10*tt.seconds)
		}
		// The provider states no length: the same is charged, as an estimate.
		if events := g.spool.all(); len(events) != 1 || int64(events[0].Cost) != 10*tt.seconds || !events[0].Estimated {
			t.Errorf("%s: charged %+v; want %d, estimated", tt.name, events, 10*tt.seconds)
		}
	}
}

// A key is revoked, and that is acknowledged, while the job is recorded or at a first provider.
func TestRevocationBeforeTheSubmitStopsTheCreation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		revoke func(g *gateway, key string)
		calls  int
	}{
		{"while it is recorded", func(g *gateway, key string) {
			g.plane.set(func(p *controlPlane) { p.onVideoCreate = func() { g.revoke(key) } })
		}, 0},
		{"before the next route", func(g *gateway, key string) {
			g.sims[0].setAnswer(func(w http.ResponseWriter, r *http.Request) {
				g.revoke(key)
				jsonAnswer(529, `{"error":{"type":"overloaded_error","message":"Overloaded"}}`)(w, r)
			})
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, videoProvider("queued"), videoProvider("queued"))
			key := g.issue("key_2", theAccount)
			tt.revoke(g, key)
			if got := g.post("/v1/videos", videoBody, "Authorization", "Bearer "+key).apiError(t); got.Status != 401 || got.Code != "invalid_api_key" {
				t.Errorf("got %+v; want 401", got)
			}
			if first, second := len(g.sims[0].received()), len(g.sims[1].received()); first != tt.calls || second != 0 {
				t.Errorf("%d and %d calls; want %d and none", first, second, tt.calls)
			}
			if v := g.plane.onlyVideo(t); v.Status != event.VideoFailed || v.Error != "" {
				t.Errorf("the record is %+v; want a failed job without a reason", v)
			}
		})
	}
}

// Another client leaves, and the record fails: the job has its outcome all the same.
func TestVideoIsStoredThoughItsClientIsGone(t *testing.T) {
	t.Parallel()
	entered, gone := make(chan struct{}), make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-gone
		videoProvider("queued")(w, r)
	})
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if response, err := g.try(ctx, http.MethodPost, "/v1/videos", strings.NewReader(videoBody)); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-entered
	leave()
	<-done
	<-(<-g.served).Done()
	g.plane.set(func(p *controlPlane) { p.updatesDown = true })
	close(gone)
	g.server.Close() // waits for the handler
	if len(g.plane.backups) != 1 || g.plane.backups[0].UpstreamID != "up_1" {
		t.Errorf("the bus has %+v; want the job with the provider's id", g.plane.backups)
	}
}

// Text of the provider is not passed on, whatever its status.
func TestContentThatIsNoVideoIsNotRelayed(t *testing.T) {
	t.Parallel()
	g := newGateway(t, videoProvider("completed"))
	path := "/v1/videos/" + g.post("/v1/videos", videoBody).video(t).ID + "/content"
	for _, contentType := range []string{"application/json", "application/problem+json; charset=utf-8", "text/html", "TEXT/plain", "application/xhtml+xml"} {
		g.sims[0].setAnswer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write([]byte(`{"error":{"message":"a text of the provider"}}`))
		})
		got := g.send(http.MethodGet, path, "")
		if e := got.apiError(t); e.Status != 502 || strings.Contains(got.body, "a text of the provider") {
			t.Errorf("%s: got %d %s; want 502", contentType, got.status, got.body)
		}
	}
	for _, content := range []string{"", ` {"error":{"message":"a text of the provider"}}`, "<!doctype html><title>a text of the provider</title>"} {
		g.sims[0].setAnswer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "video/mp4")
			_, _ = w.Write([]byte(content))
		})
		got := g.send(http.MethodGet, path, "")
		if e := got.apiError(t); e.Status != 502 || strings.Contains(got.body, "a text of the provider") {
			t.Errorf("%q as a video: got %d %s; want 502", content, got.status, got.body)
		}
	}
	g.sims[0].setAnswer(jsonAnswer(416, `{"error":{"message":"a text of the provider"}}`))
	if got := g.send(http.MethodGet, path, "", "Range", "bytes=50-"); got.status != 416 || got.body != "" || got.header.Get("Content-Type") != "" {
		t.Errorf("got %d %s %q; want 416 without a body", got.status, got.header, got.body)
	}
}

// Signed addresses would let a client past the gateway, and identifiers are the provider's.
func TestVideoObjectHasOnlyTheDocumentedMembers(t *testing.T) {
	t.Parallel()
	g := newGateway(t, videoProvider("queued"))
	id := g.post("/v1/videos", videoBody).video(t).ID
	g.sims[0].setAnswer(jsonAnswer(200, `{"id":"up_1","object":"generation","model":"up-model","status":"failed","progress":57,"created_at":1,"completed_at":2,"expires_at":null,`+
		`"prompt":"a cat","size":"720x1280","seconds":8,"remixed_from_video_id":"video_canary","download_url":"https://canary.example/signed","output":{"url":"https://canary.example"},`+
		`"request_id":"req_canary","organization":"org-canary","usage":{"cost":3},"error":{"code":"moderation_blocked","message":"Blocked.","type":"canary","param":"canary"}}`))
	want := `{"id":"` + id + `","object":"video","model":"video","status":"failed","progress":57,"created_at":1,"completed_at":2,"expires_at":null,` +
		`"prompt":"a cat","size":"720x1280","seconds":"8","remixed_from_video_id":null,"error":{"code":"moderation_blocked","message":"Blocked."}}`
	if got := g.send(http.MethodGet, "/v1/videos/"+id, ""); got.body != want {
		t.Errorf("got  %s\nwant %s", got.body, want)
	}
}
