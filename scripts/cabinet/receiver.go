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

// maxEvent bounds the size of an event, in bytes. All events are smaller.
const maxEvent = 64 << 10

// Receiver is the HTTP handler that the gateway sends events to. If it answers with a status other than 2xx, the gateway
// sends the event again, for three days.
type Receiver struct {
	// Secrets are the secrets of the webhook. There are two while the secret is rotated.
	Secrets []signature.Secret
	// Handle processes an event. If it fails, the event is sent again.
	Handle func(ctx context.Context, e *adminclient.Event) error

	mu sync.Mutex
	// done has the ids of the events that were handled. A real cabinet keeps them in its database for 30 days, with a
	// unique index, and writes them in the transaction that handles the event. Then no event is handled twice because of
	// a crash or a second replica.
	done map[string]bool
}

// ServeHTTP accepts an event if its signature is valid and recent, and handles it once, however often it is sent.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxEvent)) // the signature is over these bytes
	if err != nil {
		http.Error(w, "the event could not be read", http.StatusBadRequest)
		return
	}

	id, err := signature.Verify(q.Header, body, time.Now(), r.Secrets...)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}

	var event adminclient.Event
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, "the body is not an event in JSON", http.StatusBadRequest)
		return
	}

	if err := r.once(q.Context(), id, &event); err != nil {
		slog.ErrorContext(q.Context(), "event handling failed", "event", id, "error", err)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}

	w.WriteHeader(http.StatusNoContent)
}

// once handles an event unless it was handled before. A copy that arrives in the meantime waits for the result.
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
