package rig

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// A Holder is a provider that keeps every chat request waiting until it is
// told to answer, so that a test says how many run at once.
type Holder struct {
	// Model is a model on it.
	Model string

	arrived atomic.Int64
	release chan struct{}
	one     chan struct{}
	once    sync.Once
}

const heldAnswer = `{"id":"chatcmpl-held","object":"chat.completion","created":1700000000,"model":"held","choices":[{"index":0,` +
	`"message":{"role":"assistant","content":"Here."},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`

// NewHolder makes a provider that holds requests, and a model on it. The end of the
// test releases them.
func NewHolder(t *testing.T, r *Rig) *Holder {
	t.Helper()
	h := &Holder{release: make(chan struct{}), one: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		h.arrived.Add(1)
		select {
		case <-h.release:
		case <-h.one:
		case <-q.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(heldAnswer))
	}))
	t.Cleanup(server.Close)
	t.Cleanup(h.Release)
	provider := r.Provider(t, Provider{BaseURL: server.URL})
	h.Model = r.Model(t, Model{Routes: []Route{{Provider: provider, UpstreamModel: "held", Formats: []string{"chat"}}}})
	return h
}

// Await waits until n requests have reached the provider.
func (h *Holder) Await(t *testing.T, n int64) {
	t.Helper()
	Await(t, "requests to reach the provider", func(context.Context) error {
		if got := h.arrived.Load(); got < n {
			return fmt.Errorf("%d arrived; want %d", got, n)
		}
		return nil
	})
}

// Arrived returns how many requests have reached the provider.
func (h *Holder) Arrived() int64 { return h.arrived.Load() }

// Release lets every request be answered, now and later.
func (h *Holder) Release() { h.once.Do(func() { close(h.release) }) }

// AnswerOne lets one waiting request be answered.
func (h *Holder) AnswerOne() { h.one <- struct{}{} }
