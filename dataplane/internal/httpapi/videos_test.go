package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

const (
	videoBody = `{"model":"video","prompt":"a cat","seconds":"4","size":"720x1280"}`
	theVideo  = "0123456789"
)

// providerVideo returns the provider's video object in the given state.
func providerVideo(status string) string {
	return `{"id":"up_1","object":"video","model":"up-model","status":"` + status + `","progress":0,"created_at":1,"size":"720x1280","seconds":"4"}`
}

// videoProvider answers as a provider of videos. Its jobs have the status that was last sent to the channel.
func videoProvider(status string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/content") {
			jsonAnswer(http.StatusOK, providerVideo(status))(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "video/mp4")
		h.Set("X-Account", "secret")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(theVideo))
	}
}

type videoObject struct{ ID, Object, Model, Status string }

func (a answer) video(t *testing.T) videoObject {
	t.Helper()
	var v videoObject
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.Object != "video" || !strings.HasPrefix(v.ID, "video_") {
		t.Fatalf("got %d %s: %v", a.status, a.body, err)
	}
	return v
}

func TestVideoFromCreationToContent(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	var known event.Video
	g.sims[0].setAnswer(func(w http.ResponseWriter, r *http.Request) {
		known = g.plane.onlyVideo(t) // recorded before the call
		videoProvider("queued")(w, r)
	})
	created := g.post("/v1/videos", videoBody)
	v := created.video(t)
	if created.status != http.StatusAccepted || v.Status != "queued" || v.Model != "video" {
		t.Errorf("got %d %s", created.status, created.body)
	}
	if known.ID != v.ID || known.UpstreamID != "" || known.RequestID != created.header.Get("X-Request-Id") || known.Sheet == nil || known.Seconds != 4 {
		t.Errorf("recorded before the call: %+v", known)
	}
	call := g.sims[0].received()[0]
	if want := strings.Replace(videoBody, `"video"`, `"up-model"`, 1); call.body != want || call.header.Get("Idempotency-Key") != v.ID {
		t.Errorf("got call %+v", call)
	}
	if got := g.plane.onlyVideo(t); got.UpstreamID != "up_1" {
		t.Errorf("recorded after the call: %+v", got)
	}
	path := "/v1/videos/" + v.ID
	if got := g.send(http.MethodGet, path+"/content", "").apiError(t); got.Status != 404 || got.Code != "not_found" {
		t.Errorf("content before it is ready: got %+v", got)
	}
	g.sims[0].setAnswer(videoProvider("in_progress"))
	g.pass(time.Second)
	if got := g.send(http.MethodGet, path, ""); got.status != http.StatusOK || got.video(t).Status != "in_progress" || got.video(t).ID != v.ID || strings.Contains(got.body, "up") {
		t.Errorf("got %d %s", got.status, got.body)
	}
	polls := len(g.sims[0].received())
	for range 5 {
		if got := g.send(http.MethodGet, path, ""); got.video(t).Status != "in_progress" {
			t.Errorf("within a second of the last poll: got %d %s", got.status, got.body)
		}
	}
	if more := len(g.sims[0].received()) - polls; more != 0 {
		t.Errorf("clients made %d further polls within a second; want none", more)
	}
	g.sims[0].setAnswer(videoProvider("completed"))
	g.pass(time.Second)
	for range 3 {
		if got := g.send(http.MethodGet, path, ""); got.video(t).Status != "completed" {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	events := g.spool.all()
	if len(events) != 1 {
		t.Fatalf("got %d charges", len(events))
	}
	if e := events[0]; e.Cost != 40 || e.Usage.Seconds != 4 || e.VideoJob != v.ID || e.RequestID != known.RequestID || e.Status != event.Completed {
		t.Errorf("got event %+v", e)
	}
	if asked := len(g.sims[0].received()); asked != 4 { // creation, content, twice its status
		t.Errorf("the provider was called %d times", asked)
	}
	if got := g.send(http.MethodHead, path, ""); got.status != http.StatusOK || got.body != "" {
		t.Errorf("HEAD: got %d %s", got.status, got.body)
	}
}

func TestVideoContentIsRelayed(t *testing.T) {
	t.Parallel()
	g := newGateway(t, videoProvider("completed"))
	path := "/v1/videos/" + g.post("/v1/videos", videoBody).video(t).ID + "/content"
	tests := []struct {
		name, method, target, rng string
		want                      int
		body, header              string
	}{
		{"whole", "GET", path, "", 200, theVideo, ""},
		{"range", "GET", path, "bytes=2-4", 206, "234", "bytes 2-4/10"},
		{"end", "GET", path, "bytes=-3", 206, "789", "bytes 7-9/10"},
		{"range that is not there", "GET", path, "bytes=50-", 416, "", "bytes */10"},
		{"head", "HEAD", path, "", 200, "", ""},
		{"variant", "GET", path + "?variant=thumbnail", "", 200, theVideo, ""},
	}
	for _, tt := range tests {
		var headers []string
		if tt.rng != "" {
			headers = []string{"Range", tt.rng}
		}
		got := g.send(tt.method, tt.target, "", headers...)
		if got.status != tt.want || got.body != tt.body || got.header.Get("Content-Range") != tt.header {
			t.Errorf("%s: got %d %q, %q", tt.name, got.status, got.body, got.header.Get("Content-Range"))
		}
		if got.header.Get("X-Account") != "" || !strings.HasPrefix(got.header.Get("X-Request-Id"), "req_") {
			t.Errorf("%s: got headers %v", tt.name, got.header)
		}
		if tt.want == 200 && (got.header.Get("Content-Type") != "video/mp4" || got.header.Get("Content-Length") != "10" || got.header.Get("Accept-Ranges") != "bytes") {
			t.Errorf("%s: got headers %v", tt.name, got.header)
		}
	}
	calls := g.sims[0].received()
	last := calls[len(calls)-1]
	if last.target != "/v1/videos/up_1/content?variant=thumbnail" || last.header.Get("Authorization") != "Bearer secret-0" {
		t.Errorf("got call %+v", last)
	}
	if got := g.send(http.MethodGet, path+"?variant=other", "").apiError(t); got.Status != 400 || got.Param != "variant" {
		t.Errorf("unknown variant: got %+v", got)
	}
	g.sims[0].setAnswer(jsonAnswer(404, `{"error":{"message":"Video up_1 has expired","type":"invalid_request_error"}}`))
	if got := g.send(http.MethodGet, path, "").apiError(t); got.Status != 404 || got.Code != "not_found" || strings.Contains(got.Message, "up_1") {
		t.Errorf("content that is gone: got %+v", got)
	}
	g.sims[0].setAnswer(jsonAnswer(500, `{}`))
	if got := g.send(http.MethodGet, path, "").apiError(t); got.Status != 502 {
		t.Errorf("provider fails: got %+v", got)
	}
	g.sims[0].setAnswer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "video/mp4")
		_, _ = io.WriteString(w, theVideo)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	response, err := g.try(t.Context(), http.MethodGet, path, http.NoBody)
	if err != nil {
		return // nothing of it had left yet
	}
	defer func() { _ = response.Body.Close() }()
	if data, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("a truncated download looks complete: %q", data)
	}
}

func TestOnlyKeysOfTheAccountSeeAVideo(t *testing.T) {
	t.Parallel()
	g := newGateway(t, videoProvider("completed"))
	id := g.post("/v1/videos", videoBody).video(t).ID
	g.plane.open("acc_2", 1000, 1000, 1)
	sibling, stranger := "Bearer "+g.issue("key_2", theAccount), "Bearer "+g.issue("key_3", "acc_2")
	g.plane.spend(theAccount, balanceOffset, 0) // polling needs no balance
	for _, path := range []string{"/v1/videos/" + id, "/v1/videos/" + id + "/content"} {
		if got := g.send(http.MethodGet, path, "", "Authorization", sibling); got.status != http.StatusOK {
			t.Errorf("another key of the account: got %d %s", got.status, got.body)
		}
		want := apiError{Status: 404, Code: "not_found", Final: true}
		if diff := cmp.Diff(want, g.send(http.MethodGet, path, "", "Authorization", stranger).apiError(t), ignoreTexts); diff != "" {
			t.Errorf("another account (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, g.send(http.MethodGet, strings.Replace(path, id, "video_none", 1), "").apiError(t), ignoreTexts); diff != "" {
			t.Errorf("no job (-want +got):\n%s", diff)
		}
	}
}

func TestVideoNeedsAvailableUnitsButNoSlotAndNoReservation(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                  string
		balance, limit, slots int64
		want                  int
	}{
		{"no slot is needed", 1, 1, 0, 202},
		{"no balance", 0, 10, 5, 402},
		{"no limit", 10, 0, 5, 403},
	}
	for _, tt := range tests {
		g := newGateway(t, videoProvider("queued"))
		g.plane.open("acc_2", tt.balance, tt.limit, tt.slots)
		key := "Bearer " + g.issue("key_2", "acc_2")
		if got := g.post("/v1/videos", videoBody, "Authorization", key); got.status != tt.want {
			t.Errorf("%s: got %d %s", tt.name, got.status, got.body)
		}
		if n := len(g.sims[0].received()); (n == 1) != (tt.want == 202) || len(g.plane.videos) != n {
			t.Errorf("%s: %d calls, %d records", tt.name, n, len(g.plane.videos))
		}
	}
}

// Lookups share a queue in the control plane with those of all accounts and of the pollers that bill.
func TestOneAccountsLookupsOfVideosAreBounded(t *testing.T) {
	t.Parallel()
	const most = 16
	g := newGateway(t)
	began, answer := make(chan struct{}, most), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	g.plane.set(func(p *controlPlane) {
		p.onVideoGet = func(account string) {
			if account == theAccount {
				began <- struct{}{}
				<-answer
			}
		}
	})
	id := "/v1/videos/" + ident.Video.New()
	var all sync.WaitGroup
	for range most {
		all.Go(func() {
			if got := g.send(http.MethodGet, id, ""); got.status != http.StatusNotFound {
				t.Errorf("within the bound: got %d %s", got.status, got.body)
			}
		})
	}
	for range most {
		<-began
	}
	for _, path := range []string{id, id + "/content"} {
		if got := g.send(http.MethodGet, path, "").apiError(t); got.Status != http.StatusTooManyRequests || got.RetryAfter != "1" {
			t.Errorf("%s beyond the bound: got %+v; want 429", path, got)
		}
	}
	g.plane.open("acc_2", 10, 10, 5)
	other := "Bearer " + g.issue("key_2", "acc_2")
	if got := g.send(http.MethodGet, id, "", "Authorization", other); got.status != http.StatusNotFound {
		t.Errorf("another account: got %d %s", got.status, got.body)
	}
	release()
	all.Wait()
	if got := g.send(http.MethodGet, id, ""); got.status != http.StatusNotFound {
		t.Errorf("afterwards: got %d %s", got.status, got.body)
	}
}

// raiFiltered is the answer of a provider whose content policy refuses the prompt.
const raiFiltered = `{"name":"operations/0c335789","done":true,"response":{"@type":"type.googleapis.com/cloud.ai.large_models.vision.GenerateVideoResponse",` +
	`"raiMediaFilteredCount":1,"raiMediaFilteredReasons":["Veo could not generate 1 videos based on the prompt provided. Try rephrasing the prompt."]}}`

func TestVideoFailoverOnlyIfNoProviderCanHaveTheJob(t *testing.T) {
	t.Parallel()
	made := "Bearer secret-1" // created by the second provider
	tests := []struct {
		name   string
		answer http.HandlerFunc
		dead   bool
		want   int
		status string
		// reason is in the record of a job that was given up; by is the credential of the provider that created it.
		reason, by string
	}{
		{name: "not reached", dead: true, want: 202, status: "queued", by: made},
		{name: "overloaded", answer: jsonAnswer(529, `{"error":{"type":"overloaded_error","message":"Overloaded"}}`), want: 202, status: "queued", by: made},
		{name: "gateway account refused", answer: jsonAnswer(401, `{"error":{"message":"Incorrect API key provided"}}`), want: 202, status: "queued", by: made},
		{name: "invalid request", answer: jsonAnswer(400, `{"error":{"message":"Invalid value for 'size'","param":"size","code":"invalid_value"}}`), want: 400, status: "failed"},
		{name: "dropped", answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: 502, status: "failed", reason: "not known"},
		{name: "no object", answer: jsonAnswer(200, `{}`), want: 502, status: "failed", reason: "not known"},
		{name: "refused in an answer with status 200", answer: jsonAnswer(200, raiFiltered), want: 400, status: "failed"},
		{name: "rate limit in an answer with status 200", answer: jsonAnswer(200, `{"error":{"code":"rate_limit_exceeded","message":"Rate limit reached"}}`), want: 202, status: "queued", by: made},
		{name: "truncated", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, providerVideo("queued"))
			panic(http.ErrAbortHandler)
		}, want: 502, status: "failed", reason: "not known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGatewayWith(t, options{provider: func(i int, p *catalogkv.Provider) {
				if i == 0 && tt.dead {
					p.BaseURL = unreachable
				}
			}}, tt.answer, videoProvider("queued"))
			got := g.post("/v1/videos", videoBody)
			v := g.plane.onlyVideo(t)
			if got.status != tt.want || v.Status != tt.status || !strings.Contains(v.Error, tt.reason) || (v.Error != "") != (tt.reason != "") {
				t.Errorf("got %d %s, record %+v", got.status, got.body, v)
			}
			calls := g.sims[1].received()
			if (len(calls) == 1) != (tt.by != "") || (len(calls) == 1 && calls[0].header.Get("Authorization") != tt.by) {
				t.Errorf("got calls of the second provider: %+v", calls)
			}
			if tt.by != "" && (v.Provider != "prv_1" || v.Route != "rte_1_video" || v.Credential != "crd_1" || v.UpstreamID != "up_1") {
				t.Errorf("got record %+v", v)
			}
			if len(g.spool.all()) != 0 {
				t.Error("a usage event was recorded")
			}
		})
	}
}

func TestVideoThatCannotBeRecordedIsNotCreated(t *testing.T) {
	t.Parallel()
	g := newGateway(t, videoProvider("queued"))
	g.sims[0].setAnswer(videoProvider("queued"))
	if got := g.post("/v1/videos", videoBody); got.status != http.StatusAccepted {
		t.Fatalf("got %d", got.status)
	}
	id := g.plane.onlyVideo(t).ID
	g.plane.set(func(p *controlPlane) { p.updatesDown = true })
	g.sims[0].setAnswer(videoProvider("completed"))
	// The final state cannot be recorded: the client gets the last known one.
	if got := g.send(http.MethodGet, "/v1/videos/"+id, ""); got.status != http.StatusOK || got.video(t).Status != "queued" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := g.send(http.MethodGet, "/v1/videos/"+id+"/content", "").apiError(t); got.Status != 404 {
		t.Errorf("got %+v", got)
	}
	g.plane.set(func(p *controlPlane) { p.down = true })
	want := apiError{Status: 503, Code: "service_unavailable", RetryAfter: "1"}
	if diff := cmp.Diff(want, g.send(http.MethodGet, "/v1/videos/"+id, "").apiError(t), ignoreTexts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	g.plane.set(func(p *controlPlane) { p.down, p.updatesDown = false, false })
	g.sims[0].setAnswer(jsonAnswer(500, `{}`))
	if got := g.send(http.MethodGet, "/v1/videos/"+id, ""); got.status != http.StatusOK || got.video(t).Status != "queued" {
		t.Errorf("provider fails: got %d %s", got.status, got.body)
	}
}

func TestVideoIsCreatedWithoutItsClient(t *testing.T) {
	t.Parallel()
	entered, gone, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-gone
		videoProvider("queued")(w, r)
		close(answered)
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
	close(gone)
	<-answered
	g.server.Close() // waits for the handler
	if v := g.plane.onlyVideo(t); v.UpstreamID != "up_1" || v.Status != "queued" {
		t.Errorf("got record %+v", v)
	}
}

func TestVideoFromAForm(t *testing.T) {
	t.Parallel()
	g := newGateway(t, videoProvider("queued"))
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for name, value := range map[string]string{"model": "video", "prompt": "a cat", "seconds": "4"} {
		if err := w.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := g.post("/v1/videos", form.String(), "Content-Type", w.FormDataContentType()); got.status != http.StatusAccepted {
		t.Errorf("got %d %s", got.status, got.body)
	}
	call := g.sims[0].received()[0]
	if call.header.Get("Content-Type") != "application/json" || !strings.Contains(call.body, `"model":"up-model"`) || !strings.Contains(call.body, `"seconds":"4"`) {
		t.Errorf("got call %+v", call)
	}
	if got := g.post("/v1/videos", "no form", "Content-Type", w.FormDataContentType()).apiError(t); got.Status != 400 || got.Code != "invalid_request" {
		t.Errorf("got %+v", got)
	}
}
