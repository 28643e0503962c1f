package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// A BlockingProvider is a provider that blocks every chat request until the test releases it,
// so that the test controls how many run concurrently. A stream blocks after its first word.
type BlockingProvider struct {
	// Model is the id of a model that it serves.
	Model string

	arrived atomic.Int64
	release chan struct{}
	one     chan struct{}
	once    sync.Once
}

const heldAnswer = `{"id":"chatcmpl-held","object":"chat.completion","created":1700000000,"model":"held","choices":[{"index":0,` +
	`"message":{"role":"assistant","content":"Here."},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`

// blockedStream is the same answer as a stream, in the part before and the part after the block.
var blockedStream = [2]string{
	`data: {"id":"chatcmpl-held","object":"chat.completion.chunk","created":1700000000,"model":"held","choices":[{"index":0,` +
		`"delta":{"role":"assistant","content":"Here"},"finish_reason":null}]}` + "\n\n",
	`data: {"id":"chatcmpl-held","object":"chat.completion.chunk","created":1700000000,"model":"held","choices":[{"index":0,` +
		`"delta":{"content":"."},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"id":"chatcmpl-held","object":"chat.completion.chunk","created":1700000000,"model":"held","choices":[],` +
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}` + "\n\ndata: [DONE]\n\n",
}

// NewBlockingProvider starts a provider that blocks requests, and adds a model that it serves.
// The end of the test releases them.
func NewBlockingProvider(t *testing.T, r *Rig) *BlockingProvider {
	t.Helper()
	h := &BlockingProvider{release: make(chan struct{}), one: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(server.Close)
	t.Cleanup(h.Release)
	provider := r.Provider(t, Provider{BaseURL: server.URL})
	h.Model = r.Model(t, Model{Routes: []Route{{Provider: provider, UpstreamModel: "held", Formats: []string{"chat"}}}})
	return h
}

func (h *BlockingProvider) serve(w http.ResponseWriter, q *http.Request) {
	var body struct{ Stream bool }
	if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}

	kind, rest := "application/json", heldAnswer
	if body.Stream {
		kind, rest = "text/event-stream", blockedStream[1]
	}

	w.Header().Set("Content-Type", kind)
	if body.Stream {
		_, _ = io.WriteString(w, blockedStream[0])
		_ = http.NewResponseController(w).Flush()
	}

	h.arrived.Add(1)
	select {
	case <-h.release:
	case <-h.one:
	case <-q.Context().Done():
		return
	}

	_, _ = io.WriteString(w, rest)
}

// Await waits until n requests have reached the provider.
func (h *BlockingProvider) Await(t *testing.T, n int64) {
	t.Helper()
	Await(t, "requests to reach the provider", func(context.Context) error {
		if got := h.arrived.Load(); got < n {
			return fmt.Errorf("%d arrived; want %d", got, n)
		}
		return nil
	})
}

// Arrived returns how many requests have reached the provider.
func (h *BlockingProvider) Arrived() int64 { return h.arrived.Load() }

// Release lets all requests be answered, those to come included.
func (h *BlockingProvider) Release() { h.once.Do(func() { close(h.release) }) }

// AnswerOne lets one blocked request be answered.
func (h *BlockingProvider) AnswerOne() { h.one <- struct{}{} }
