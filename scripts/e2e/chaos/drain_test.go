package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

// A proxy that shuts down is not ready and lets running streams end.
func TestDataplaneDrainsStreams(t *testing.T) {
	r := rig.Get(t)
	h := rig.NewBlockingProvider(t, r)
	account := r.Account(t, rig.AccountSpec{})
	const streams = 8
	bodies := make([]string, streams)
	faults := make([]error, streams)
	var readers sync.WaitGroup
	var ended atomic.Int64
	for i := range streams {
		response, err := r.Open(t.Context(), rig.Request{Path: "/v1/chat/completions", Key: account.Key, Body: stream(h.Model)})
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("got %v, %v; want a stream", response, err)
		}
		readers.Go(func() {
			defer func() { _ = response.Body.Close() }()
			text, err := io.ReadAll(response.Body)
			bodies[i], faults[i] = string(text), err
			ended.Add(1)
		})
	}
	h.Await(t, streams)

	restarted := r.Terminate(t, rig.DataPlane1)
	rig.Await(t, "the proxy to say that it is not ready", func(ctx context.Context) error {
		if status, err := r.Ready(ctx, rig.DataPlane1); err != nil || status != http.StatusServiceUnavailable {
			return fmt.Errorf("got %d, %w; want 503", status, err)
		}
		return nil
	})
	if n := ended.Load(); n != 0 {
		t.Errorf("%d streams have already ended; want readiness checked while all are running", n)
	}
	h.Release()
	readers.Wait()
	for i := range streams {
		if faults[i] != nil || !strings.HasSuffix(bodies[i], "data: [DONE]\n\n") {
			t.Errorf("stream %d ended with %v after %d bytes; want a complete stream", i, faults[i], len(bodies[i]))
		}
	}
	restarted()

	r.AwaitSessions(t)
	var charged money.Nano
	for _, u := range account.AwaitUsage(t, streams) {
		cost, err := money.Parse(u.Cost)
		if err != nil || u.Status != "completed" || u.Estimated {
			t.Errorf("%s: got %s, estimated %t, %v; want the usage that the provider reported", u.RequestID, u.Status, u.Estimated, err)
		}
		charged += cost
	}
	if balance := account.AwaitIdle(t); balance != credit-charged {
		t.Errorf("the balance is %v; want %v", balance, credit-charged)
	}
	checkInvariants(t, r)
}

func stream(model string) map[string]any {
	return map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": "Go on."}}, "stream": true}
}
