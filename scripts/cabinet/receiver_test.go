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

// bench is a receiver, and what it acted on.
type bench struct {
	*testing.T
	receiver cabinet.Receiver
	secret   signature.Secret
	handled  []string
	fault    error
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, secret: signature.NewSecret()}
	b.receiver = cabinet.Receiver{
		Secrets: []signature.Secret{signature.NewSecret(), b.secret}, // one takes the place of the other
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
func (b *bench) send(id string, at time.Time, body []byte, signer signature.Secret) int {
	b.Helper()
	q := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", bytes.NewReader(body))
	signature.Sign(q.Header, id, at, body, signer)
	w := httptest.NewRecorder()
	b.receiver.ServeHTTP(w, q)
	return w.Code
}

func event(t *testing.T, id string) []byte {
	t.Helper()
	body, err := json.Marshal(adminclient.Event{ID: id, Type: string(adminclient.AccountLowBalance), Timestamp: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestReceiverActsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := event(t, "evt_1")
	// Sent again: with a new time and signature, as a repeated delivery is, and as it was, as an eavesdropper would.
	at := time.Now()
	for _, at := range []time.Time{at, at.Add(time.Second), at} {
		if got := b.send("evt_1", at, body, b.secret); got != http.StatusNoContent {
			t.Errorf("got %d; want 204", got)
		}
	}
	if len(b.handled) != 1 {
		t.Errorf("acted on %q; want evt_1 once", b.handled)
	}
}

func TestReceiverActsOnceOnCopiesAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := event(t, "evt_1")
	var copies sync.WaitGroup
	for range 8 {
		copies.Go(func() { b.send("evt_1", time.Now(), body, b.secret) })
	}
	copies.Wait()
	if len(b.handled) != 1 {
		t.Errorf("acted on %q; want evt_1 once", b.handled)
	}
}

// What could not be acted on is asked for again, and then acted on.
func TestReceiverAsksAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := event(t, "evt_1")
	b.fault = errors.New("the database is away")
	if got := b.send("evt_1", time.Now(), body, b.secret); got != http.StatusServiceUnavailable {
		t.Errorf("got %d; want 503", got)
	}
	b.fault = nil
	if got := b.send("evt_1", time.Now(), body, b.secret); got != http.StatusNoContent || len(b.handled) != 1 {
		t.Errorf("got %d and acted on %q", got, b.handled)
	}
}

func TestReceiverRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := time.Now().Add(-signature.Tolerance - time.Minute)
	for name, test := range map[string]struct {
		at     time.Time
		body   []byte
		signer signature.Secret
		want   int
	}{
		"a stranger's":    {time.Now(), event(t, "evt_1"), signature.NewSecret(), http.StatusUnauthorized},
		"an old one":      {old, event(t, "evt_1"), b.secret, http.StatusUnauthorized},
		"no event":        {time.Now(), []byte("hello"), b.secret, http.StatusBadRequest},
		"one without end": {time.Now(), bytes.Repeat([]byte(" "), 1<<20), b.secret, http.StatusBadRequest},
	} {
		if got := b.send("evt_1", test.at, test.body, test.signer); got != test.want {
			t.Errorf("%s: got %d; want %d", name, got, test.want)
		}
	}
	if len(b.handled) != 0 {
		t.Errorf("acted on %q", b.handled)
	}
}
