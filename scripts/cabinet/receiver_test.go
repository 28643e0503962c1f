package cabinet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/signature"
	"modelgateway/scripts/cabinet"
)

// fixture is a receiver with the ids of the events that it handled.
type fixture struct {
	*testing.T
	receiver cabinet.Receiver
	secret   signature.Secret
	handled  []string
	fault    error
}

func setup(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{T: t, secret: signature.NewSecret()}
	b.receiver = cabinet.Receiver{
		Secrets: []signature.Secret{signature.NewSecret(), b.secret}, // the secret is being rotated
		Handle: func(_ context.Context, e *adminclient.Event) error {
			if b.fault == nil {
				b.handled = append(b.handled, e.ID)
			}
			return b.fault
		},
	}
	return b
}

// send delivers an event as the gateway does and returns the status.
func (b *fixture) send(id string, at time.Time, body []byte, signer signature.Secret) int {
	b.Helper()
	q := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", bytes.NewReader(body))
	signature.Sign(q.Header, id, at, body, signer)
	w := httptest.NewRecorder()
	b.receiver.ServeHTTP(w, q)
	return w.Code
}

func event(t *testing.T, id string) []byte {
	t.Helper()
	body, err := json.Marshal(adminclient.Event{ID: id, Type: string(adminclient.EventTypeAccountLowBalance), Timestamp: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestReceiverHandlesARepeatedEventOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := event(t, "evt_1")
	// A repeated delivery has a new time and signature; a replayed message has the old ones.
	at := time.Now()
	for _, at := range []time.Time{at, at.Add(time.Second), at} {
		if got := b.send("evt_1", at, body, b.secret); got != http.StatusNoContent {
			t.Errorf("got %d; want 204", got)
		}
	}
	if len(b.handled) != 1 {
		t.Errorf("handled %q; want evt_1 once", b.handled)
	}
}

func TestReceiverHandlesConcurrentCopiesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := event(t, "evt_1")
	var copies sync.WaitGroup
	for range 8 {
		copies.Go(func() { b.send("evt_1", time.Now(), body, b.secret) })
	}
	copies.Wait()
	if len(b.handled) != 1 {
		t.Errorf("handled %q; want evt_1 once", b.handled)
	}
}

func TestReceiverAsksForAnotherDeliveryAfterAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := event(t, "evt_1")
	b.fault = errors.New("the database is unavailable")
	if got := b.send("evt_1", time.Now(), body, b.secret); got != http.StatusServiceUnavailable {
		t.Errorf("got %d; want 503", got)
	}
	b.fault = nil
	if got := b.send("evt_1", time.Now(), body, b.secret); got != http.StatusNoContent || len(b.handled) != 1 {
		t.Errorf("got %d and handled %q", got, b.handled)
	}
}

func TestReceiverRefusesInvalidEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := time.Now().Add(-signature.Tolerance - time.Minute)
	for name, test := range map[string]struct {
		at     time.Time
		body   []byte
		signer signature.Secret
		want   int
	}{
		"unknown secret": {time.Now(), event(t, "evt_1"), signature.NewSecret(), http.StatusUnauthorized},
		"old event":      {old, event(t, "evt_1"), b.secret, http.StatusUnauthorized},
		"not an event":   {time.Now(), []byte("hello"), b.secret, http.StatusBadRequest},
		"too long":       {time.Now(), bytes.Repeat([]byte(" "), 1<<20), b.secret, http.StatusBadRequest},
	} {
		if got := b.send("evt_1", test.at, test.body, test.signer); got != test.want {
			t.Errorf("%s: got %d; want %d", name, got, test.want)
		}
	}
	if len(b.handled) != 0 {
		t.Errorf("handled %q", b.handled)
	}
}
