package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"modelgateway/shared/event"
)

// oddAnswer answers a call in a way that the format does not have.
type oddAnswer struct {
	name        string
	status      int
	contentType string
	body        string
}

func (o oddAnswer) answer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", o.contentType)
	w.WriteHeader(o.status)
	_, _ = io.WriteString(w, o.body)
}

// completedWith returns a provider's completed video object in which a part is replaced.
func completedWith(part, other string) string {
	return strings.Replace(providerVideo("completed"), part, other, 1)
}

func TestOddObjectsOfVideosAreReadOrRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, object string
		// id is the provider's one, empty if the creation is refused. has is in the client's object, hasNot is not.
		id, has, hasNot string
	}{
		{"a number as id", completedWith(`"up_1"`, `17`), "17", `"id":"video_`, ""},
		{"a fraction as id", completedWith(`"up_1"`, `1.5`), "", "", ""},
		{"a negative id", completedWith(`"up_1"`, `-1`), "", "", ""},
		{"an id that leads up", completedWith(`"up_1"`, `".."`), "", "", ""},
		{"an id that leads nowhere", completedWith(`"up_1"`, `"."`), "", "", ""},
		{"an id with slashes", completedWith(`"up_1"`, `"a/../b"`), "a/../b", `"id":"video_`, ""},
		{"an object as id", completedWith(`"up_1"`, `{"id":1}`), "", "", ""},
		{"an error beside the result", completedWith(`"progress":0`, `"error":{"code":"x","message":"boom"}`), "up_1", `"error":null`, "boom"},
		{"a number beyond all stores", completedWith(`"progress":0`, `"progress":1e400000`), "up_1", `"completed"`, "1e4"},
		{"a long number", completedWith(`"progress":0`, `"progress":`+strings.Repeat("9", 30)), "up_1", `"completed"`, "999"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, jsonAnswer(http.StatusOK, tt.object))
			got := g.post("/v1/videos", videoBody)
			if tt.id == "" {
				if e := got.apiError(t); e.Status != http.StatusBadGateway || len(g.spool.all()) != 0 {
					t.Errorf("got %+v, %d charges", e, len(g.spool.all()))
				}
				return
			}
			if got.status != http.StatusAccepted || !strings.Contains(got.body, tt.has) || tt.hasNot != "" && strings.Contains(got.body, tt.hasNot) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if v := g.plane.onlyVideo(t); v.UpstreamID != tt.id || v.Status != event.VideoCompleted {
				t.Errorf("recorded: %+v", v)
			}
			if e := g.spool.next(t); e.Cost != 40 {
				t.Errorf("charged: %+v", e)
			}
		})
	}
}

func TestContentThatIsNoVideoIsAnError(t *testing.T) {
	t.Parallel()
	const film, mp4 = "\x00\x00\x00\x18ftypmp42 film", "video/mp4"
	for _, tt := range []struct {
		oddAnswer

		want int
	}{
		{oddAnswer{"a film", 200, mp4, film}, 200},
		{oddAnswer{"a film without a type of its own", 200, "application/octet-stream", film}, 200},
		{oddAnswer{"a thumbnail", 200, "image/png", "\x89PNG\r\n\x1a\n words in it"}, 200},
		{oddAnswer{"a part that was not asked for", 206, mp4, film}, 206},
		{oddAnswer{"a text", 200, mp4, `"not ready"`}, 502},
		{oddAnswer{"null", 200, mp4, "null\n"}, 502},
		{oddAnswer{"an error behind a mark", 200, mp4, "\ufeff{\"error\":\"x\"}"}, 502},
		{oddAnswer{"a sentence", 200, "application/octet-stream", "The video is not ready yet.\r\n"}, 502},
		{oddAnswer{"a sentence in another script", 200, mp4, "видео ещё не готово"}, 502},
		{oddAnswer{"an error as a part", 206, mp4, `{"error":"x"}`}, 502},
		{oddAnswer{"accepted without a body", 202, mp4, ""}, 502},
		{oddAnswer{"spaces", 200, mp4, " \n"}, 502},
		{oddAnswer{"not ready", 409, "application/json", `{"error":"not ready"}`}, 404},
		{oddAnswer{"too early", 425, "application/json", `{"error":"too early"}`}, 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, videoProvider("completed"))
			path := "/v1/videos/" + g.post("/v1/videos", videoBody).video(t).ID
			g.sims[0].setAnswer(tt.answer)
			g.pass(time.Second)
			got := g.send(http.MethodGet, path+"/content", "")
			if got.status != tt.want {
				t.Errorf("got %d %q; want %d", got.status, got.body, tt.want)
			}
			if got.status >= 400 && strings.Contains(got.body, "ready yet") {
				t.Errorf("got the provider's text: %s", got.body)
			}
		})
	}
}
