package cabinet

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/signature"
)

// maxEvent is more than any event is long, in bytes.
const maxEvent = 64 << 10

// Receiver is the address that the gateway sends events to. What it has
// answered with a success is not sent again, anything else is, for three days.
type Receiver struct {
	// Secrets are the endpoint's; there are two while one takes the other's place.
	Secrets []signature.Secret
	// Handle acts on an event. When it fails, the event comes again.
	Handle func(ctx context.Context, e *adminclient.Event) error

	mu sync.Mutex
	// done holds the ids of what was acted on. A real cabinet keeps them in its database for 30 days, unique, written in
	// the transaction that acts on the event: then neither a crash nor a second replica does anything twice.
	done map[string]bool
}

// ServeHTTP takes an event for genuine if it is signed and not old, and acts on
// it once, however often it comes.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxEvent)) // the bytes as they came are what is signed
	if err != nil {
		http.Error(w, "the event cannot be read", http.StatusBadRequest)
		return
	}
	id, err := signature.Verify(q.Header, body, time.Now(), r.Secrets...)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var event adminclient.Event
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, "the event is not JSON of an event", http.StatusBadRequest)
		return
	}
	if err := r.once(q.Context(), id, &event); err != nil {
		slog.ErrorContext(q.Context(), "webhook", "event", id, "error", err)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// once handles an event unless that was done before. A copy that arrives
// meanwhile waits for the outcome.
func (r *Receiver) once(ctx context.Context, id string, event *adminclient.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[id] {
		return nil
	}
	if err := r.Handle(ctx, event); err != nil {
		return err
	}
	if r.done == nil {
		r.done = map[string]bool{}
	}
	r.done[id] = true
	return nil
}
