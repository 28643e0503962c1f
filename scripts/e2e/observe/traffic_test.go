package observe

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

// send lets one client send the same request again and again until the end of the test, or until stop is called.
func send(t *testing.T, r *rig.Rig, requests ...rig.Request) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for _, q := range requests {
		clients.Go(func() {
			for ctx.Err() == nil {
				_, _ = r.Try(ctx, q) // the answers are the product's affair; the test looks at the metrics
				pause(ctx)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); clients.Wait() })
	t.Cleanup(stop)
	return stop
}

// leave lets a client begin a stream and leave it, again and again until the end of the test.
func leave(t *testing.T, r *rig.Rig, q rig.Request) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var client sync.WaitGroup
	client.Go(func() {
		for ctx.Err() == nil {
			if response, err := r.Open(ctx, q); err == nil {
				_, _ = io.ReadFull(response.Body, make([]byte, 200))
				_ = response.Body.Close()
			}
			pause(ctx)
		}
	})
	t.Cleanup(func() { cancel(); client.Wait() })
}

// pause is the time between two requests of a client.
func pause(ctx context.Context) {
	const between = 50 * time.Millisecond
	select {
	case <-ctx.Done():
	case <-time.After(between):
	}
}

// chat returns a request to a model.
func chat(key, model string, stream bool) rig.Request {
	return rig.Request{Path: "/v1/chat/completions", Key: key, Body: object{
		"model": model, "stream": stream, "messages": []object{{"role": "user", "content": "Is anybody there?"}},
	}}
}
