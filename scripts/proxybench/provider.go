package proxybench

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sentAt begins the text of an event. In paced streams the text begins with the time of its sending, in Unix nanoseconds: the text
// differs between the events of real streams, and the other members do not.
var sentAt = []byte(`"content":"`)

// eventsPerStream is the number of content events of a stream.
const eventsPerStream = 100

const usage = `"usage":{"prompt_tokens":250,"completion_tokens":150,"total_tokens":400}`

var (
	answerJSON = []byte(
		`{"id":"c","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"` +
			strings.Repeat("word ", 140) + `"},"finish_reason":"stop"}],` + usage + `}`,
	)
	answerEvent = []byte(
		`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":{"content":"` +
			strings.Repeat("word ", 10) + `"},"finish_reason":null}]}` + "\n\n",
	)
	answerEnd = []byte(
		`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench",` +
			`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[],` + usage + "}\n\ndata: [DONE]\n\n",
	)
)

const (
	// pace is the interval between two events of a paced stream.
	pace = 20 * time.Millisecond
	// paced is the word in a prompt that requests a paced stream.
	paced = "slowly"
)

// Provider answers chat completions from memory: as one JSON object, or as a stream whose events
// are written one by one, in a burst or paced. The events of a paced stream have the time of their
// sending.
func Provider(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has closed the connection
	}

	if !bytes.Contains(body, []byte(`"stream":true`)) && !bytes.Contains(body, []byte(`"stream": true`)) { // peers encode it anew
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
		if slowly {
			_, _ = w.Write(
				bytes.Replace(answerEvent, sentAt, append(strconv.AppendInt(slices.Clip(sentAt), time.Now().UnixNano(), 10), ' '), 1),
			)
		} else {
			_, _ = w.Write(answerEvent)
		}
		_ = flush.Flush()
		if slowly {
			<-ticker.C
		}
	}

	_, _ = w.Write(answerEnd)
}

// prompt returns the body of the requests of a scenario.
func prompt(s Scenario) []byte {
	text := strings.Repeat("word ", s.Prompt/5)
	if s.Paced {
		text += paced
	}
	return fmt.Appendf(
		nil,
		`{"model":"%s","stream":%v,"messages":[{"role":"user","content":"%s"}]}`,
		cmp.Or(s.Model, "bench"),
		s.Stream,
		text,
	)
}
