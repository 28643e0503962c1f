package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// The steps of a video job at its provider.
const (
	submitted = "submitted" // the job is created
	polled    = "polled"    // the first poll
	completed = "completed" // the poll that reports completion
)

// A videoProvider is a provider of videos that can block at one step.
type videoProvider struct {
	model string

	mu sync.Mutex
	// polls counts the polls of each job.
	polls map[string]int
	// at is the step at which requests block. reached is closed when a request has arrived
	// there, and the request continues when let is closed.
	at           string
	reached, let chan struct{}
}

func newVideoProvider(t *testing.T, r *rig.Rig) *videoProvider {
	t.Helper()
	s := &videoProvider{polls: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/videos", func(w http.ResponseWriter, q *http.Request) {
		s.pause(q.Context(), submitted)
		s.mu.Lock()
		id := fmt.Sprintf("video-%d", len(s.polls)+1)
		s.polls[id] = 0
		s.mu.Unlock()
		show(w, id, "queued")
	})
	mux.HandleFunc("GET /v1/videos/{id}", func(w http.ResponseWriter, q *http.Request) {
		id := q.PathValue("id")
		s.mu.Lock()
		s.polls[id]++
		n := s.polls[id]
		s.mu.Unlock()
		if n == 1 {
			s.pause(q.Context(), polled)
			show(w, id, "in_progress")
			return
		}
		s.pause(q.Context(), completed)
		show(w, id, "completed")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	provider := r.Provider(t, rig.Provider{BaseURL: server.URL})
	s.model = r.Model(t, rig.Model{Type: "video", Routes: []rig.Route{{Provider: provider, UpstreamModel: "studio", Formats: []string{"videos"}}}})
	return s
}

func show(w http.ResponseWriter, id, status string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // fails only if the client has disconnected
		"id": id, "object": "video", "model": "studio", "status": status, "progress": 0, "created_at": 1_700_000_000, "size": "720x1280", "seconds": "4",
	})
}

// waitAt blocks the first request that reaches a step, and then closes reached. let makes the
// request continue.
func (s *videoProvider) waitAt(step string) (reached <-chan struct{}, let func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.reached, s.let = step, make(chan struct{}), make(chan struct{})
	return s.reached, sync.OnceFunc(func() { close(s.let) })
}

func (s *videoProvider) pause(ctx context.Context, step string) {
	s.mu.Lock()
	if s.at != step {
		s.mu.Unlock()
		return
	}
	s.at = ""
	close(s.reached)
	let := s.let
	s.mu.Unlock()
	select {
	case <-let:
	case <-ctx.Done():
	}
}

// made returns the number of jobs that the provider created.
func (s *videoProvider) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.polls)
}
