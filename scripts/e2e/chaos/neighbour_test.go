package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"modelgateway/scripts/e2e/rig"
)

const (
	// defaultMemory is the memory limit of a data plane in the chart.
	defaultMemory = 1 << 30
	// attackBody is the size of a large body: four of them are the share of an account at this limit. attackAnswer is more
	// than what is left of it.
	attackBody, attackAnswer = 21_400_000, 400 << 10
	victims, requestsEach    = 3, 60
	// thinking is how long the provider of the victims takes.
	thinking = 200 * time.Millisecond
)

// One account takes what it can get of a bound that accounts share. Three others are served as before: all of their
// requests, and at most half as fast in the worst of a hundred.
func TestOneAccountTakesAllThatItCanGet(t *testing.T) {
	rig.Long(t)
	r := rig.Start(t, rig.Options{DataPlanes: 1, DataSettings: []string{fmt.Sprintf("GOMEMLIMIT=%d", defaultMemory/100*80)}})
	n := &neighbours{rig: r}
	n.victimModel = n.model(t, thinking, "Yes.")
	n.attackModel = n.model(t, 0, strings.Repeat("words ", attackAnswer/6))
	for range victims {
		n.victims = append(n.victims, r.Account(t, rig.AccountSpec{Credit: "10"}))
	}
	alone := n.worst(t)
	picture := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", attackBody) + `"}}`
	large := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":[%s]}]}`, n.attackModel, picture)
	for _, attack := range []struct {
		name    string
		senders int
		// read is how much of each answer the attacker reads before it asks again.
		read int64
		body string
	}{
		{"large bodies whose answers need more than the share", 4, 1 << 30, large},
		{"answers that are not read", 8, 1, large},
		{"more requests than slots", 64, 1 << 30, strings.Replace(large, strings.Repeat("A", attackBody), "QUJD", 1)},
	} {
		attacker := r.Account(t, rig.AccountSpec{Credit: "100", Slots: 16})
		ctx, stop := context.WithCancel(t.Context())
		got := map[int]int{}
		var mu sync.Mutex
		var attackers sync.WaitGroup
		for range attack.senders {
			attackers.Go(func() {
				for ctx.Err() == nil {
					status := n.attack(ctx, attacker.Key, attack.body, attack.read)
					mu.Lock()
					got[status]++
					mu.Unlock()
				}
			})
		}
		during := n.worst(t)
		stop()
		attackers.Wait()
		t.Logf("%s: a victim waits %s instead of %s at most; answers of the attacker by status: %v", attack.name, during, alone, got)
		if during > 2*alone {
			t.Errorf("%s: a victim waits %s; without the attacker %s", attack.name, during, alone)
		}
		if got[http.StatusOK] == 0 {
			t.Errorf("%s: the attacker is not served at all: %v", attack.name, got)
		}
	}
	r.AwaitSettled(t)
	checkInvariants(t, r)
}

// neighbours are accounts that use one proxy.
type neighbours struct {
	rig                      *rig.Rig
	victims                  []*rig.Account
	victimModel, attackModel string
}

// model adds a model whose provider answers with a text after some time.
func (n *neighbours) model(t *testing.T, after time.Duration, text string) string {
	t.Helper()
	answer := fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m",`+
		`"choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`, text)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		select {
		case <-time.After(after):
		case <-q.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	provider := n.rig.Provider(t, rig.Provider{BaseURL: server.URL})
	return n.rig.Model(t, rig.Model{Routes: []rig.Route{{Provider: provider, UpstreamModel: "m", Formats: []string{"chat"}}}})
}

// worst lets all victims send their requests, checks that each is served, and returns how long the slowest but one in a
// hundred took.
func (n *neighbours) worst(t *testing.T) time.Duration {
	t.Helper()
	body := map[string]any{"model": n.victimModel, "messages": []any{map[string]any{"role": "user", "content": strings.Repeat("words ", 5000)}}}
	var mu sync.Mutex
	var took []time.Duration
	var clients sync.WaitGroup
	for _, victim := range n.victims {
		clients.Go(func() {
			for range requestsEach {
				began := time.Now()
				answer, err := n.rig.Try(t.Context(), rig.Request{Path: "/v1/chat/completions", Key: victim.Key, Body: body})
				if err != nil || answer.Status != http.StatusOK {
					t.Errorf("a victim got %s, %v", answer, err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	slices.Sort(took)
	return took[len(took)-1-len(took)/100]
}

// attack sends a request and reads some of its answer. It returns the status, zero if there was none.
func (n *neighbours) attack(ctx context.Context, key, body string, read int64) int {
	q := rig.Request{Path: "/v1/chat/completions", Key: key, Body: strings.NewReader(body), Length: int64(len(body))}
	response, err := n.rig.Open(ctx, q)
	if err != nil {
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.CopyN(io.Discard, response.Body, read)
	return response.StatusCode
}
