package httpapi_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"modelgateway/shared/event"
)

// typed answers with a body under a media type, none if that is empty.
func typed(mediaType string, body ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		if mediaType != "" {
			w.Header().Set("Content-Type", mediaType)
		}
		sendEvents(w, body...)
	}
}

func TestStreamIsKnownByItsTypeOrByItsFirstBytes(t *testing.T) {
	t.Parallel()
	for name, d := range dialects() {
		for _, mediaType := range []string{"", "text/plain", "application/json", "application/octet-stream", "Text/Event-Stream;charset=UTF-8", "TEXT/EVENT-STREAM"} {
			t.Run(name+" "+mediaType, func(t *testing.T) {
				t.Parallel()
				g := newGateway(t, typed(mediaType, "\n", d.head, d.text, d.end))
				got := g.post(d.path, d.body)
				if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/event-stream; charset=utf-8" || !strings.Contains(got.body, d.last) {
					t.Errorf("got %d %s", got.status, got.body)
				}
				if e := g.spool.next(t); e.Status != event.Completed || e.Cost != chatCost || !e.Stream {
					t.Errorf("got event %+v", e)
				}
			})
		}
	}
}

// A client that waits for events cannot read an answer in one piece, so another route is asked, and nothing is charged.
func TestAnswerInOnePieceIsNoStream(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(200, chatJSON), streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone))
	if got := g.post("/v1/chat/completions", chatStreamBody); got.status != http.StatusOK || !strings.HasSuffix(got.body, chatDone) {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if e := g.spool.next(t); e.Status != event.Completed || e.Cost != chatCost || e.Route != "rte_1_text" {
		t.Errorf("got event %+v", e)
	}
	alone := newGateway(t, jsonAnswer(200, chatJSON))
	for range 20 { // the route stays open for requests without a stream
		if got := alone.post("/v1/chat/completions", chatStreamBody).apiError(t); got.Status != 502 || got.Code != "upstream_unavailable" {
			t.Fatalf("got %+v", got)
		}
		if e := alone.spool.next(t); e.Status != event.Failed || e.Rule != event.RuleNone || e.Cost != 0 {
			t.Fatalf("got event %+v", e)
		}
	}
	if got := alone.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
		t.Errorf("got %d %s", got.status, got.body)
	}
	limited := newGateway(t, jsonAnswer(200, `{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}`))
	if got := limited.post("/v1/chat/completions", chatStreamBody).apiError(t); got.Status != 429 {
		t.Errorf("an error in one piece: got %+v", got)
	}
}

// What a model writes must not decide how the failure is classified.
func TestStreamInPlaceOfAnAnswerInOnePieceIsAFailure(t *testing.T) {
	t.Parallel()
	text := strings.Replace(chatText, "Hello there.", "maximum context length exceeded", 1)
	g := newGateway(t, streamAnswer(chatHead, text, chatStop, chatUsage, chatDone), jsonAnswer(200, chatJSON))
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK {
		t.Errorf("got %d %s", got.status, got.body)
	}
	limited := newGateway(t, streamAnswer(`data: {"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}`+"\n\n"))
	if got := limited.post("/v1/chat/completions", chatBody).apiError(t); got.Status != 429 {
		t.Errorf("got %+v", got)
	}
}

func TestNothingFollowsTheEndOfAStream(t *testing.T) {
	t.Parallel()
	for name, d := range dialects() {
		g := newGateway(t, streamAnswer(d.head, d.text, d.end, d.end, d.text, chatDone, d.fault))
		got := g.post(d.path, d.body)
		if n := strings.Count(got.body, d.last+"\n"); n != 1 || strings.Contains(got.body, `"error":{`) {
			t.Errorf("%s: %d ends in %s", name, n, got.body)
		}
		if e := g.spool.next(t); e.Status != event.Completed || e.Cost != chatCost {
			t.Errorf("%s: got event %+v", name, e)
		}
	}
}

func TestAnswerWithNothingInItGoesToTheNextRoute(t *testing.T) {
	t.Parallel()
	choiceError := `"choices":[{"index":0,"message":{"content":""},"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"Provider disconnected"}}]}`
	for name, first := range map[string]string{
		"end alone": chatDone, "error in a choice": "data: {" + choiceError + "\n\n" + chatDone, "no choice": chatUsage + chatDone,
	} {
		g := newGateway(t, streamAnswer(first), streamAnswer(chatHead, chatText, chatStop, chatUsage, chatDone))
		if got := g.post("/v1/chat/completions", chatStreamBody); got.status != http.StatusOK || !strings.Contains(got.body, "Hello") {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
		if e := g.spool.next(t); e.Cost != chatCost || e.Route != "rte_1_text" || len(e.Attempts) != 2 {
			t.Errorf("%s: got event %+v", name, e)
		}
	}
	for name, first := range map[string]string{"error in a choice": `{"id":"x",` + choiceError, "no choice": `{"id":"x","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}`} {
		g := newGateway(t, jsonAnswer(200, first), jsonAnswer(200, chatJSON))
		if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK || !strings.Contains(got.body, "Hello") {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
	}
}

// gzipped answers with a compressed body, declared or not.
func gzipped(status int, mediaType, body string, declared bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		if declared {
			w.Header().Set("Content-Encoding", "gzip")
		}
		w.WriteHeader(status)
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, body)
		_ = z.Close()
	}
}

func TestCompressedAnswersAndErrorsAreRead(t *testing.T) {
	t.Parallel()
	const tooLong = `{"error":{"message":"This model's maximum context length is 128000 tokens.","code":"context_length_exceeded"}}`
	g := newGateway(t, gzipped(200, "application/json", chatJSON, true))
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK || !strings.Contains(got.body, "Hello") || got.header.Get("Content-Encoding") != "" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	g = newGateway(t, gzipped(200, "text/event-stream", chatHead+chatText+chatStop+chatUsage+chatDone, true))
	if got := g.post("/v1/chat/completions", chatStreamBody); got.status != http.StatusOK || !strings.HasSuffix(got.body, chatDone) {
		t.Errorf("got %d %s", got.status, got.body)
	}
	g = newGateway(t, gzipped(400, "application/json", tooLong, true))
	if got := g.post("/v1/chat/completions", chatBody).apiError(t); got.Code != "context_length_exceeded" {
		t.Errorf("got %+v", got)
	}
	g = newGateway(t, gzipped(400, "application/json", tooLong, false))
	if got := g.post("/v1/chat/completions", chatBody).apiError(t); got.Code != "context_length_exceeded" {
		t.Errorf("got %+v", got)
	}
}

// marked answers with a text behind a byte order mark.
func marked(status int, mediaType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "\xef\xbb\xbf"+body)
	}
}

func TestAnswersBehindAMarkOrCompressedUndeclaredAreServedAndCharged(t *testing.T) {
	t.Parallel()
	stream := chatHead + chatText + chatStop + chatUsage + chatDone
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		body   string
	}{
		"mark, JSON":       {marked(200, "application/json", chatJSON), chatBody},
		"mark, stream":     {marked(200, "text/event-stream", stream), chatStreamBody},
		"mark, no type":    {marked(200, "", stream), chatStreamBody},
		"gzip, JSON":       {gzipped(200, "application/json", chatJSON, false), chatBody},
		"gzip, stream":     {gzipped(200, "text/event-stream", stream, false), chatStreamBody},
		"gzip, other type": {gzipped(200, "application/json", stream, false), chatStreamBody},
	} {
		g := newGateway(t, tt.answer)
		if got := g.post("/v1/chat/completions", tt.body); got.status != http.StatusOK || !strings.Contains(got.body, "Hello") || strings.Contains(got.body, "\xef\xbb\xbf") {
			t.Errorf("%s: got %d %q", name, got.status, got.body)
		}
		if e := g.spool.next(t); e.Cost != chatCost || e.Estimated {
			t.Errorf("%s: got event %+v", name, e)
		}
	}
	const tooLong = `{"error":{"message":"This model's maximum context length is 128000 tokens.","code":"context_length_exceeded"}}`
	if got := newGateway(t, marked(400, "application/json", tooLong)).post("/v1/chat/completions", chatBody).apiError(t); got.Code != "context_length_exceeded" {
		t.Errorf("got %+v", got)
	}
}

func TestAnswerInAnUnknownEncodingAsksTheNextRoute(t *testing.T) {
	t.Parallel()
	unknown := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, chatJSON)
	}
	g := newGateway(t, unknown, jsonAnswer(200, chatJSON))
	if got := g.post("/v1/chat/completions", chatBody); got.status != http.StatusOK || !strings.Contains(got.body, "Hello") {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if e := g.spool.next(t); e.Cost != chatCost || len(e.Attempts) != 2 {
		t.Errorf("got event %+v", e)
	}
	if got := newGateway(t, unknown).post("/v1/chat/completions", chatBody).apiError(t); got.Status != http.StatusBadGateway {
		t.Errorf("got %+v", got)
	}
}

func TestAnswerOfAnImageModelWithoutAnImageIs422(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"created":1,"data":[]}`, `{"created":1,"data":null}`, `{"created":1}`,
		`{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"I cannot draw that."},"finish_reason":"stop"}]}`,
	} {
		g := newGateway(t, jsonAnswer(200, body), jsonAnswer(200, body))
		if got := g.post("/v1/images/generations", `{"model":"image","prompt":"x"}`).apiError(t); got.Status != 422 || got.Code != "generation_failed" {
			t.Errorf("%s: got %+v", body, got)
		}
		if e := g.spool.next(t); e.Cost != 0 || len(g.sims[1].received()) != 0 {
			t.Errorf("%s: got event %+v", body, e)
		}
	}
}
