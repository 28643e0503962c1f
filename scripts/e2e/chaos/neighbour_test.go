package chaos

import (
	"context"
	"encoding/json"
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

// An account downloads its video with as many connections as it likes, and reads nothing. Others download theirs and are
// answered as before: what an account may not have is refused at once, and holds nothing.
func TestDownloadsOfOneAccountLeaveThoseOfOthers(t *testing.T) {
	rig.Long(t)
	r := rig.Start(t, rig.Options{DataPlanes: 1, DataSettings: []string{fmt.Sprintf("GOMEMLIMIT=%d", defaultMemory/100*80)}})
	n := &neighbours{rig: r}
	n.victimModel = n.model(t, thinking, "Yes.")
	studio := n.studio(t)
	attacker := r.Account(t, rig.AccountSpec{Credit: "100"})
	stolen := n.video(t, attacker.Key, studio)
	for range victims {
		n.victims = append(n.victims, r.Account(t, rig.AccountSpec{Credit: "10"}))
	}
	alone := n.worst(t)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const senders = 64
	var mu sync.Mutex
	got := map[int]int{}
	var attackers sync.WaitGroup
	for range senders {
		attackers.Go(func() {
			for ctx.Err() == nil {
				response, err := r.Open(ctx, rig.Request{Path: stolen, Key: attacker.Key})
				if err != nil {
					continue
				}
				mu.Lock()
				got[response.StatusCode]++
				mu.Unlock()
				if response.StatusCode == http.StatusOK {
					<-ctx.Done() // never read
				}
				_ = response.Body.Close()
			}
		})
	}
	rig.Await(t, "downloads of the attacker to be refused", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if got[http.StatusTooManyRequests] < senders {
			return fmt.Errorf("answers by status: %v", got)
		}
		return nil
	})
	during := n.worst(t)
	for _, victim := range n.victims {
		path := n.video(t, victim.Key, studio)
		answer, err := r.Try(t.Context(), rig.Request{Path: path, Key: victim.Key})
		if err != nil || answer.Status != http.StatusOK || len(answer.Body) != studioBytes {
			t.Errorf("the download of a victim: got %s, %v", answer, err)
		}
	}
	stop()
	attackers.Wait()
	t.Logf("a victim waits %s instead of %s at most; answers of the attacker by status: %v", during, alone, got)
	if during > 2*alone {
		t.Errorf("a victim waits %s; without the attacker %s", during, alone)
	}
	if got[http.StatusOK] != 4 || len(got) != 2 {
		t.Errorf("the attacker got %v; want 4 downloads, and 429 for the others", got)
	}
	r.AwaitSettled(t)
	checkInvariants(t, r)
}

// studioBytes is the size of a video of the studio: more than connections hold in buffers.
const studioBytes = 16 << 20

// studio adds a model of a provider that makes videos at once.
func (n *neighbours) studio(t *testing.T) string {
	t.Helper()
	content := strings.Repeat("v", studioBytes)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !strings.HasSuffix(q.URL.Path, "/content") {
			show(w, "video-1", "completed")
			return
		}
		w.Header().Set("Content-Type", "video/mp4")
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(server.Close)
	provider := n.rig.Provider(t, rig.Provider{BaseURL: server.URL})
	return n.rig.Model(t, rig.Model{Type: "video", Routes: []rig.Route{{Provider: provider, UpstreamModel: "studio", Formats: []string{"videos"}}}})
}

// video lets an account make a video, and returns the path of its content when it is completed.
func (n *neighbours) video(t *testing.T, key, model string) string {
	t.Helper()
	made, err := n.rig.Try(t.Context(), rig.Request{Path: "/v1/videos", Key: key, Body: map[string]any{"model": model, "prompt": "sea"}})
	if err != nil || made.Status != http.StatusAccepted {
		t.Fatalf("create a video: got %s, %v", made, err)
	}
	var job struct{ ID, Status string }
	made.Decode(t, &job)
	rig.Await(t, "the video to be completed", func(ctx context.Context) error {
		answer, err := n.rig.Try(ctx, rig.Request{Path: "/v1/videos/" + job.ID, Key: key})
		if err != nil {
			return err
		}
		if err := json.Unmarshal(answer.Body, &job); err != nil || job.Status != "completed" {
			return fmt.Errorf("got %s, %w", answer, err)
		}
		return nil
	})
	return "/v1/videos/" + job.ID + "/content"
}
