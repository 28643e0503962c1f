package proxybench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// eventsPerStream is how many events with text a stream has.
const eventsPerStream = 100

const usage = `"usage":{"prompt_tokens":250,"completion_tokens":150,"total_tokens":400}`

var (
	answerJSON = []byte(`{"id":"c","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("word ", 140) + `"},"finish_reason":"stop"}],` + usage + `}`)
	answerEvent = []byte(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":{"content":"` +
		strings.Repeat("word ", 10) + `"},"finish_reason":null}]}` + "\n\n")
	answerEnd = []byte(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[],` + usage + "}\n\ndata: [DONE]\n\n")
)

// Provider answers chat completions from memory: in one piece, or with a burst
// of events, each of them written by itself.
func Provider(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // nobody is left
	}
	if !bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answerJSON)))
		_, _ = w.Write(answerJSON)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	for range eventsPerStream {
		_, _ = w.Write(answerEvent)
		_ = flush.Flush()
	}
	_, _ = w.Write(answerEnd)
}

// prompt is a request of about a size.
func prompt(size int, stream bool) []byte {
	return fmt.Appendf(nil, `{"model":"bench","stream":%v,"messages":[{"role":"user","content":"%s"}]}`, stream, strings.Repeat("word ", size/5))
}
