package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

// A gate is a provider that reports the arrival of each request and answers it when the test
// allows it. Its answers cost nothing.
type gate struct {
	model string

	mu sync.Mutex
	// waiting has the expected and the arrived requests, by the token in their text.
	waiting  map[string]*visit
	made     int
	released int
}

type visit struct {
	arrived, let chan struct{}
	once         sync.Once
}

const freeAnswer = `{"id":"chatcmpl-free","object":"chat.completion","created":1700000000,"model":"free","choices":[{"index":0,` +
	`"message":{"role":"assistant","content":"Here."},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":0,"total_tokens":10}}`

var tokenText = regexp.MustCompile(`token-\d+-`)

func newGate(t *testing.T, r *rig.Rig) *gate {
	t.Helper()
	g := &gate{waiting: map[string]*visit{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body) // an incomplete body has no token
		g.mu.Lock()
		v := g.waiting[tokenText.FindString(string(body))]
		g.mu.Unlock()
		if v != nil {
			v.once.Do(func() { close(v.arrived) })
			select {
			case <-v.let:
			case <-q.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, freeAnswer)
	}))
	t.Cleanup(server.Close)
	provider := r.Provider(t, rig.Provider{BaseURL: server.URL})
	g.model = r.Model(t, rig.Model{
		Price:  map[string]any{"input": "0", "output": "2.00"},
		Routes: []rig.Route{{Provider: provider, UpstreamModel: "free", Formats: []string{"chat"}}},
	})
	return g
}

// reservation returns the reservation of each request. It does not depend on the token.
func (g *gate) reservation(t *testing.T, r *rig.Rig) money.Nano {
	t.Helper()
	return reservationOf(t, r, g.model)
}

// expect returns a token for a request, and a channel that is closed when the request arrives.
func (g *gate) expect() (token string, arrived <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made++
	token = fmt.Sprintf("token-%d-", g.made)
	v := &visit{arrived: make(chan struct{}), let: make(chan struct{})}
	g.waiting[token] = v
	return token, v.arrived
}

// release allows the answer to a request.
func (g *gate) release(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.waiting[token].let)
	delete(g.waiting, token)
	g.released++
}

// awaitMore waits until n more requests were released.
func (g *gate) awaitMore(t *testing.T, n int) {
	t.Helper()
	g.mu.Lock()
	from := g.released
	g.mu.Unlock()
	rig.Await(t, "more requests to be released", func(context.Context) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.released < from+n {
			return fmt.Errorf("%d were; want %d", g.released-from, n)
		}
		return nil
	})
}
