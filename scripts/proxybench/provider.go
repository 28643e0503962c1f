package proxybench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
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

// pace is the time between two events of a paced stream, and paced what the
// prompt of one says.
const (
	pace  = 20 * time.Millisecond
	paced = "slowly"
)

// Provider answers chat completions from memory: in one piece, or with events,
// each of them written by itself, in a burst or paced.
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
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	slowly := bytes.Contains(body, []byte(paced))
	for range eventsPerStream {
		_, _ = w.Write(answerEvent)
		_ = flush.Flush()
		if slowly {
			<-ticker.C
		}
	}
	_, _ = w.Write(answerEnd)
}

// prompt is the request of a scenario.
func prompt(s Scenario) []byte {
	text := strings.Repeat("word ", s.Prompt/5)
	if s.Paced {
		text += paced
	}
	return fmt.Appendf(nil, `{"model":"bench","stream":%v,"messages":[{"role":"user","content":"%s"}]}`, s.Stream, text)
}
