package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// providerCall is one call as the provider got it.
type providerCall struct {
	method, target string
	header         http.Header
	body           string
}

// providerSim simulates a provider: it records each call and answers as the test says.
type providerSim struct {
	*httptest.Server
	mu     sync.Mutex
	calls  []providerCall
	answer http.HandlerFunc
}

func newSim(t *testing.T, answer http.HandlerFunc) *providerSim {
	t.Helper()
	s := &providerSim{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err != nil {
			return // the gateway has closed the connection
		}
		s.mu.Lock()
		s.calls = append(s.calls, providerCall{r.Method, r.URL.RequestURI(), r.Header.Clone(), string(body)})
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	return s
}

// setAnswer sets the answer for the following calls.
func (s *providerSim) setAnswer(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = h
}

// received returns the calls so far.
func (s *providerSim) received() []providerCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]providerCall(nil), s.calls...)
}

// jsonAnswer answers every call with a status and a JSON body.
func jsonAnswer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// streamAnswer sends parts of a stream, each flushed, and then ends it.
func streamAnswer(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, parts...) }
}

func sendEvents(w http.ResponseWriter, parts ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, part := range parts {
		_, _ = io.WriteString(w, part)
		w.(http.Flusher).Flush()
	}
}

// stallAfter sends parts of a stream and then stalls. It closes the channel left when the gateway has closed the
// connection.
func stallAfter(left chan<- struct{}, parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sendEvents(w, parts...)
		<-r.Context().Done()
		close(left)
	}
}

// cutAfter sends parts of a stream and then breaks the connection.
func cutAfter(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		sendEvents(w, parts...)
		panic(http.ErrAbortHandler)
	}
}

// The chat answers of the tests have 10 input and 5 output tokens, which cost 20 nano-units.
const (
	chatJSON = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"up-model","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"Hello there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`
	chatCost = 20

	chatHead  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"up-model","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	chatText  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"up-model","choices":[{"index":0,"delta":{"content":"Hello there."},"finish_reason":null}]}` + "\n\n"
	chatStop  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"up-model","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	chatUsage = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"up-model","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}` + "\n\n"
	chatDone  = "data: [DONE]\n\n"

	// textTokens is the estimate for chatText.
	textTokens = 3
)
