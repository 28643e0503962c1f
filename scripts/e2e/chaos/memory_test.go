package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

const (
	memoryLimit                = 512 << 20
	uploadSize, answerSize     = 70 << 20, 100 << 20
	imageHead, imageTail       = `{"created":1700000000,"data":[{"b64_json":"`, `"}]}`
	uploads, answers, senders  = 40, 40, 8
	streams, smallRequestsEach = 20, 25
)

// Eight accounts send 40 uploads of 70 MiB and ask for 40 answers of 100 MiB at the same time. The proxy may use 512 MiB.
// Each of these requests is served or gets a refusal with Retry-After, the proxy stays below its limit, and the streams
// and small requests of another account are served as ever.
func TestChaos_large_bodies_at_a_small_memory_limit(t *testing.T) {
	rig.Long(t)
	r := rig.Start(t, rig.Options{DataPlanes: 1, DataSettings: []string{fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit/100*80)}})
	l := &largeBodies{rig: r, got: map[string]int{}}
	l.takes, l.gives = l.provider(t, `QUJD`, 0), l.provider(t, "", answerSize)
	_, process := r.PeakMemory(t, rig.DataPlane(0))

	other := r.Account(t, rig.AccountSpec{})
	held := rig.NewBlockingProvider(t, r)
	chat := r.Model(t, rig.Model{Formats: []string{"chat"}})
	var running, load sync.WaitGroup
	for range streams {
		running.Go(func() {
			answer, err := r.Try(t.Context(), rig.Request{Path: "/v1/chat/completions", Key: other.Key, Body: stream(held.Model)})
			if err != nil || answer.Status != http.StatusOK || !strings.HasSuffix(string(answer.Body), "data: [DONE]\n\n") {
				t.Errorf("a stream beside large bodies: got %s, %v", answer, err)
			}
		})
	}
	held.Await(t, streams)

	keys := make([]string, senders)
	for i := range keys {
		keys[i] = r.Account(t, rig.AccountSpec{}).Key
	}
	for i := range uploads {
		load.Go(func() { l.upload(t, keys[i%senders]) })
	}
	for i := range answers {
		load.Go(func() { l.download(t, keys[i%senders]) })
	}
	for range smallRequestsEach {
		answer := r.Do(t, rig.Request{Path: "/v1/chat/completions", Key: other.Key, Body: question(chat)})
		if answer.Status != http.StatusOK {
			t.Errorf("a small request beside large bodies: got %s", answer)
		}
	}
	load.Wait()
	held.Release()
	running.Wait()

	peak, after := r.PeakMemory(t, rig.DataPlane(0))
	t.Logf("peak %d MiB; %v", peak>>20, l.got)
	if peak > memoryLimit || after != process {
		t.Errorf("the peak is %d MiB of %d MiB; process %s before, %s after", peak>>20, memoryLimit>>20, process, after)
	}
	for kind, send := range map[string]func(*testing.T, string){"upload": l.upload, "answer": l.download} {
		before := l.got[kind+" 200"]
		rig.Await(t, "another "+kind+" to be served", func(context.Context) error {
			if send(t, keys[0]); l.got[kind+" 200"] == before {
				return fmt.Errorf("got %v", l.got)
			}
			return nil
		})
	}
	r.AwaitSettled(t)
	checkInvariants(t, r)
}

// largeBodies sends the large bodies and counts the results.
type largeBodies struct {
	rig          *rig.Rig
	takes, gives string // models

	mu  sync.Mutex
	got map[string]int
}

// provider adds an image model whose provider answers with an image of size bytes, or with the given one.
func (l *largeBodies) provider(t *testing.T, image string, size int64) (model string) {
	t.Helper()
	length := int64(len(imageHead)+len(imageTail)+len(image)) + size
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body) // the proxy reports what it could not send
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(imageHead+image), io.LimitReader(letters{}, size), strings.NewReader(imageTail)))
	}))
	t.Cleanup(server.Close)
	provider := l.rig.Provider(t, rig.Provider{BaseURL: server.URL})
	return l.rig.Model(t, rig.Model{Type: "image", Routes: []rig.Route{{Provider: provider, UpstreamModel: "large", Formats: []string{"images"}}}})
}

// letters yields the letter A without end.
type letters struct{}

var manyLetters = strings.Repeat("A", 64<<10)

func (letters) Read(p []byte) (int, error) { return copy(p, manyLetters), nil }

func (l *largeBodies) upload(t *testing.T, key string) {
	t.Helper()
	head, tail := fmt.Sprintf(`{"model":%q,"prompt":"`, l.takes), `"}`
	body := io.MultiReader(strings.NewReader(head), io.LimitReader(letters{}, int64(uploadSize-len(head)-len(tail))), strings.NewReader(tail))
	l.send(t, "upload", key, rig.Request{Body: body, Length: uploadSize}, int64(len(imageHead)+len(imageTail)))
}

func (l *largeBodies) download(t *testing.T, key string) {
	t.Helper()
	l.send(t, "answer", key, rig.Request{Body: map[string]string{"model": l.gives, "prompt": "large"}}, answerSize)
}

// send sends a request and checks that it is served with `least` bytes or more, or refused for now.
func (l *largeBodies) send(t *testing.T, kind, key string, q rig.Request, least int64) {
	t.Helper()
	q.Path, q.Key = "/v1/images/generations", key
	response, err := l.rig.Open(t.Context(), q)
	if err != nil {
		t.Errorf("%s: %v", kind, err)
		return
	}
	n, err := io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	l.mu.Lock()
	l.got[fmt.Sprintf("%s %d", kind, response.StatusCode)]++
	l.mu.Unlock()
	switch response.StatusCode {
	case http.StatusOK:
		if err != nil || n < least {
			t.Errorf("%s: got %d bytes, %v; want %d at least", kind, n, err, least)
		}
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: got %d without Retry-After", kind, response.StatusCode)
		}
	default:
		t.Errorf("%s: got %d; want 200 or a refusal for now", kind, response.StatusCode)
	}
}
