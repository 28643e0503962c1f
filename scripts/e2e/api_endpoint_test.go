package e2e

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

func TestBothBaseAddressesReachTheEndpoints(t *testing.T) {
	a := newAPI(t)
	// Clients of one family append to a base address with /v1, those of the other to one
	// without. Old clients send doubled slashes and ?beta=true.
	for _, path := range []string{"/v1/chat/completions", "//v1/chat/completions", "/v1//chat/completions"} {
		a.ok(t, path, chat.body("demo-all"))
	}
	a.ok(t, "/v1/messages?beta=true", messages.body("demo-all"))
	a.refusedPost(t, "/v1/v1/messages", messages.body("demo-all"), refusal{404, "not_found", ""})
}

func TestEveryEndpointAnswers(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		a.ok(t, e.path, e.body(e.model))
	}
	id := a.createVideo(t, videos.body(videos.model))
	a.awaitVideo(t, id, "completed")
	for _, path := range []string{"/v1/videos/" + id, "/v1/videos/" + id + "/content", "/v1/models", "/v1/balance"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			answer := a.Do(t, rig.Request{Method: method, Path: path, Key: a.account.Key})
			if answer.Status != http.StatusOK || (len(answer.Body) == 0) != (method == http.MethodHead) {
				t.Errorf("%s %s: got %s", method, path, answer)
			}
		}
	}
}

// The official clients send the parameters of a video as a form.
func TestVideosTakeForms(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Type: "video"})
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for name, value := range map[string]string{"model": model, "prompt": "Waves", "seconds": "8", "size": "1280x720"} {
		if err := w.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	file, err := w.CreateFormFile("input_reference", "wave.png")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write([]byte("\x89PNG"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	answer := a.Do(t, rig.Request{
		Path: videos.path, Key: a.account.Key, Header: http.Header{"Content-Type": {w.FormDataContentType()}}, Body: io.Reader(&form),
	})
	var job video
	answer.Decode(t, &job)
	if answer.Status != http.StatusAccepted || job.Seconds != "8" {
		t.Fatalf("got %s; want a job of 8 seconds", answer)
	}
	a.awaitVideo(t, job.ID, "completed")
	entries := a.Sim.Journal(t, model)
	if len(entries) == 0 || !strings.Contains(entries[0].Body+string(decodeBase64(t, entries[0])), "wave.png") {
		t.Errorf("the provider did not get the file")
	}
}

func TestOtherPathsAndMethodsAreNotFound(t *testing.T) {
	a := newAPI(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v2/chat/completions", "/v1/embeddings", "/v1/messages/count_tokens", "/v1/messages/batches", "/v1/completions",
		"/v1/responses/resp_1", "/v1/images/edits", "/v1/audio/speech", "/v1/files", "/v1/models/demo-chat", "/v1/balances", "/v1/chat/completions/1",
		"/v1/videos/video_1/remix", "/metrics", "/livez", "/readyz", "/debug/pprof/", "/admin/v1/accounts", "/v1/%00", "/v1/chat%2Fcompletions",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			q := rig.Request{Method: method, Path: path, Key: a.account.Key}
			if method == http.MethodPost {
				q.Body = chat.body("demo-all")
			}
			a.refused(t, q, refusal{404, "not_found", ""})
		}
	}
	for path, methods := range map[string][]string{
		chat.path:                   {http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions},
		messages.path:               {http.MethodGet, http.MethodPut},
		videos.path:                 {http.MethodGet, http.MethodDelete},
		"/v1/videos/video_1":        {http.MethodPost, http.MethodDelete},
		"/v1/models":                {http.MethodPost, http.MethodDelete},
		"/v1/balance":               {http.MethodPost},
		"/v1/videos/video_1/cancel": {http.MethodPost},
	} {
		for _, method := range methods {
			a.refused(t, rig.Request{Method: method, Path: path, Key: a.account.Key}, refusal{404, "not_found", ""})
		}
	}
	// No key is needed to get this answer.
	a.refused(t, rig.Request{Path: "/v1/embeddings"}, refusal{404, "not_found", ""})
}

func TestAnswerHasTheFormatOfTheRequest(t *testing.T) {
	a := newAPI(t)
	for _, e := range texts {
		model := a.Model(t, rig.Model{Formats: []string{e.format}})
		answer := a.ok(t, e.path, e.with(model, "temperature", 0.25))
		var body map[string]any
		answer.Decode(t, &body)
		kind := map[string]string{"chat": "object:chat.completion", "responses": "object:response", "messages": "type:message"}[e.format]
		member, value, _ := strings.Cut(kind, ":")
		if body[member] != value || body["model"] != model {
			t.Errorf("%s: got %s; want %s of the model %s", e.path, answer, kind, model)
		}
		got := a.upstream(t, model)
		if len(got) != 1 || got[0].path != e.path || got[0].body["temperature"] != 0.25 {
			t.Errorf("%s: the provider got %v", e.path, got)
		}
	}
}

func TestModelsAreListedWithAndWithoutKey(t *testing.T) {
	a := newAPI(t)
	private := a.Model(t, rig.Model{Public: rig.False()})
	a.account.Grant(t, private)
	a.AwaitStatus(t, rig.Request{Path: chat.path, Key: a.account.Key, Body: chat.body(private)}, http.StatusOK)
	for _, header := range []http.Header{
		{"Authorization": {"Bearer mgw_0000"}},
		{"Authorization": {"Bearer "}},
		{"Authorization": {"Basic x"}},
		{"Authorization": {""}},
		{"X-Api-Key": {"mgw_0000"}},
		{"X-Api-Key": {""}},
	} {
		a.refused(t, rig.Request{Path: "/v1/models", Header: header}, refusal{401, "invalid_api_key", ""})
	}
	var list map[string]any
	a.Do(t, rig.Request{Path: "/v1/models", Header: http.Header{"X-Api-Key": {a.account.Key}}}).Decode(t, &list)
	data := list["data"].([]any)
	if list["object"] != "list" || list["has_more"] != false || list["first_id"] != data[0].(map[string]any)["id"] {
		t.Errorf("got %v; want a list that clients of both families read", list)
	}
	found := false
	for _, entry := range data {
		m := entry.(map[string]any)
		found = found || m["id"] == private
		for _, member := range []string{"id", "object", "type", "created", "created_at", "owned_by", "display_name", "endpoints", "pricing"} {
			if m[member] == nil && member != "owned_by" {
				t.Errorf("%v has no %s", m["id"], member)
			}
		}
	}
	if !found {
		t.Errorf("the model opened to the account is not listed")
	}
}

func TestVideosTakeNoSlotAndNoReservation(t *testing.T) {
	a := newAPI(t)
	account := a.Account(t, rig.AccountSpec{Slots: 1})
	h := rig.NewBlockingProvider(t, a.Rig)
	go func() {
		_, _ = a.Try(t.Context(), rig.Request{Path: chat.path, Key: account.Key, Body: chatBody(h.Model, "Hold on", false)})
	}()
	h.Await(t, 1)
	a.refused(t, rig.Request{Path: chat.path, Key: account.Key, Body: chat.body("demo-all")}, refusal{429, "rate_limit_exceeded", ""})
	reserved := a.balance(t, 0, account.Key).Reserved
	if answer := a.Do(t, rig.Request{Path: videos.path, Key: account.Key, Body: videos.body(videos.model)}); answer.Status != http.StatusAccepted {
		t.Errorf("a video beside it: got %s; want 202", answer)
	}
	if now := a.balance(t, 0, account.Key).Reserved; now != reserved {
		t.Errorf("the video job reserves: %s became %s", reserved, now)
	}
	h.Release()
	poor := a.Account(t, rig.AccountSpec{Credit: "0"})
	a.refused(t, rig.Request{Path: videos.path, Key: poor.Key, Body: videos.body(videos.model)}, refusal{402, "insufficient_quota", ""})
}

// padded returns a JSON object of exactly n bytes, for a model that does not exist.
func padded(n int) string {
	const head, tail = `{"model":"no-such-model"`, `}`
	return head + strings.Repeat(" ", n-len(head)-len(tail)) + tail
}

func TestBodySizeLimits(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		limit := 25 << 20
		if e.kind() != "text" {
			limit = 70 << 20
		}
		a.refusedPost(t, e.path, padded(limit), refusal{404, "model_not_found", "model"})
		// A body whose declared length is too large is refused before it is sent.
		declared := http.Header{"Expect": {"100-continue"}}
		body := &watched{Reader: strings.NewReader(padded(limit + 1))}
		q := rig.Request{Path: e.path, Key: a.account.Key, Header: declared, Body: io.Reader(body), Length: int64(limit + 1)}
		a.refused(t, q, refusal{413, "invalid_request", ""})
		if body.read > 0 {
			t.Errorf("%s: %d bytes were sent of a body that was declared too large", e.path, body.read)
		}
		// A chunked body is refused as soon as it passes the limit.
		a.refusedPost(t, e.path, io.MultiReader(strings.NewReader(padded(limit+1))), refusal{413, "invalid_request", ""})
	}
}

// watched counts the bytes that are read from it.
type watched struct {
	io.Reader
	read int
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.read += n
	return n, err
}

func TestLinksAndDataURLsReachTheProvider(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Formats: []string{"chat"}})
	for _, url := range []string{"https://example.org/picture.png", "data:image/png;base64,iVBORw0KGgo="} {
		body := map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}},
		}}}}
		a.ok(t, chat.path, body)
	}
	entries := a.Sim.Journal(t, model)
	if len(entries) != 2 || !strings.Contains(entries[0].Body, "https://example.org/picture.png") || !strings.Contains(entries[1].Body, "iVBORw0KGgo=") {
		t.Errorf("the provider got %v", entries)
	}
}
