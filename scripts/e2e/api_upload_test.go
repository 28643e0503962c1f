package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"modelgateway/scripts/e2e/rig"
)

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		_, err = io.WriteString(z, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func zstandard(t *testing.T, text string) string {
	t.Helper()
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}

// compressions are the accepted content encodings.
var compressions = map[string]func(*testing.T, string) string{"gzip": gzipped, "x-gzip": gzipped, "zstd": zstandard}

func encoded(encoding string) http.Header { return http.Header{"Content-Encoding": {encoding}} }

func TestCompressedBodiesAreAccepted(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		text, err := json.Marshal(e.body(e.model))
		if err != nil {
			t.Fatal(err)
		}
		for encoding, compress := range compressions {
			q := rig.Request{Path: e.path, Key: a.account.Key, Header: encoded(encoding), Body: compress(t, string(text))}
			if answer := a.Do(t, q); answer.Status >= http.StatusMultipleChoices {
				t.Errorf("%s with %s: got %s; want an answer", e.path, encoding, answer)
			}
			q.Body = string(text)
			a.refused(t, q, refusal{400, "invalid_request", ""})
		}
		a.ok(t, e.path, string(text))
		for _, encoding := range []string{"br", "deflate", "compress", "gzip, gzip", "zstd, gzip", "none"} {
			q := rig.Request{Path: e.path, Key: a.account.Key, Header: encoded(encoding), Body: string(text)}
			if message := a.refused(t, q, refusal{400, "invalid_request", ""}); !strings.Contains(message, "'"+encoding+"'") {
				t.Errorf("%s with %s: the message %q does not name the encoding", e.path, encoding, message)
			}
		}
	}
}

func TestDecompressedBodyHasTheSameLimit(t *testing.T) {
	a := newAPI(t)
	for _, encoding := range []string{"gzip", "zstd"} {
		compress := compressions[encoding]
		for isText, limit := range map[bool]int{true: 25 << 20, false: 70 << 20} {
			longest, tooLong := compress(t, padded(limit)), compress(t, padded(limit+1))
			for _, e := range generations {
				if isText != (e.kind() == "text") {
					continue
				}
				q := rig.Request{Path: e.path, Key: a.account.Key, Header: encoded(encoding), Body: longest}
				a.refused(t, q, refusal{404, "model_not_found", "model"})
				q.Body = tooLong
				a.refused(t, q, refusal{413, "invalid_request", ""})
			}
		}
	}
}

// newBusyAPI returns a stack of its own with one data plane, the least budget for bodies and one turn for large bodies.
func newBusyAPI(t *testing.T) *api {
	t.Helper()
	t.Parallel()
	r := rig.Start(t, rig.Options{DataPlanes: 1, DataSettings: []string{fmt.Sprintf("MGW_API_BODY_BUDGET=%d", 80<<20), "GOMAXPROCS=2"}})
	return &api{r, r.Account(t, rig.AccountSpec{})}
}

// hold sends a part of a body with a declared length, so much that the least upload rate leaves a minute, and waits until
// the data plane holds the room for it. The body breaks off when the returned function is called.
func (a *api) hold(t *testing.T, path, key string, length int64) (end func()) {
	t.Helper()
	in, out := io.Pipe()
	var running sync.WaitGroup
	running.Go(func() {
		_, _ = a.Try(t.Context(), rig.Request{Path: path, Key: key, Body: io.Reader(in), Length: length})
		_ = in.Close() // if the request has failed, nobody reads
	})
	running.Go(func() { _, _ = io.WriteString(out, strings.Repeat(" ", int(min(length-1, 3<<20)))) })
	end = sync.OnceFunc(func() {
		_ = out.CloseWithError(io.ErrUnexpectedEOF)
		running.Wait()
	})
	t.Cleanup(end)
	rig.Await(t, "the data plane to hold the body", func(context.Context) error {
		for line := range strings.Lines(a.Ops(t, rig.DataPlane(0), "/metrics")) {
			if text, ok := strings.CutPrefix(line, "mgw_body_bytes "); ok {
				held, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
				if err == nil && int64(held) < length {
					err = fmt.Errorf("it holds %s bytes of %d", text, length)
				}
				return err
			}
		}
		return errors.New("there is no metric mgw_body_bytes")
	})
	return end
}

// refusedForNow awaits a refusal, checks it in every detail and that it says when a retry may succeed.
func (a *api) refusedForNow(t *testing.T, q rig.Request, want refusal, message string) {
	t.Helper()
	answer := a.AwaitStatus(t, q, want.status)
	if got := checkRefusal(t, q.Path, answer, want); !strings.Contains(got, message) || answer.Header.Get("Retry-After") != "1" {
		t.Errorf("%s: got %q with Retry-After %q; want %q and 1", q.Path, got, answer.Header.Get("Retry-After"), message)
	}
}

// The budget is 80 MiB, of which small bodies keep an eighth and an account may use a quarter.
func TestBodiesBeyondTheBudgetAreRefusedForNow(t *testing.T) {
	a := newBusyAPI(t)
	const full = "holds too many large requests"
	want := refusal{503, "service_unavailable", ""}
	other := a.Account(t, rig.AccountSpec{})
	end := a.hold(t, images.path, a.account.Key, 60<<20)
	for _, e := range generations {
		a.refusedForNow(t, rig.Request{Path: e.path, Key: other.Key, Body: padded(20 << 20)}, want, full)
		a.refusedForNow(t, rig.Request{Path: e.path, Key: a.account.Key, Body: padded(1 << 20)}, want, full) // the account's share
		if answer := a.Do(t, rig.Request{Path: e.path, Key: a.account.Key, Body: e.body(e.model)}); answer.Status >= http.StatusMultipleChoices {
			t.Errorf("%s, a small body beside large ones: got %s", e.path, answer)
		}
	}
	end()
	a.AwaitStatus(t, rig.Request{Path: chat.path, Key: other.Key, Body: padded(20 << 20)}, http.StatusNotFound)
}

func TestLargeUploadsBeyondTheSlotsAreRefusedForNow(t *testing.T) {
	a := newBusyAPI(t)
	account := a.Account(t, rig.AccountSpec{Slots: 1})
	end := a.hold(t, chat.path, account.Key, 2<<20)
	for _, e := range generations {
		q := rig.Request{Path: e.path, Key: account.Key, Body: padded(2 << 20)}
		a.refusedForNow(t, q, refusal{429, "rate_limit_exceeded", ""}, "sends too many large requests")
		if answer := a.Do(t, rig.Request{Path: e.path, Key: account.Key, Body: e.body(e.model)}); answer.Status >= http.StatusMultipleChoices {
			t.Errorf("%s, a small body beside a large one: got %s", e.path, answer)
		}
	}
	end()
	a.AwaitStatus(t, rig.Request{Path: chat.path, Key: account.Key, Body: padded(2 << 20)}, http.StatusNotFound)
}

// Bodies of up to 1 MiB are no large uploads. While they keep the processors of the gateway busy, those of an account
// beyond its slots are refused before they are read.
func TestBodiesBeyondTheSlotsAreRefusedWhileProcessorsAreBusy(t *testing.T) {
	a := newBusyAPI(t)
	account := a.Account(t, rig.AccountSpec{Slots: 1})
	body := gzipped(t, padded(1<<20))
	for _, e := range texts {
		q := rig.Request{Path: e.path, Key: account.Key, Header: encoded("gzip"), Body: body}
		var first *rig.Answer
		rig.Await(t, "a body to find too many others waiting", func(ctx context.Context) error {
			var crowd sync.WaitGroup
			answers := make([]*rig.Answer, 64)
			for i := range answers {
				crowd.Go(func() { answers[i], _ = a.Try(ctx, q) })
			}
			crowd.Wait()
			for _, answer := range answers {
				if answer != nil && answer.Status == http.StatusTooManyRequests {
					first = answer
					return nil
				}
			}
			return errors.New("all were read")
		})
		checkRefusal(t, e.path, first, refusal{429, "rate_limit_exceeded", ""})
		a.AwaitStatus(t, q, http.StatusNotFound)
	}
}

func TestDownloadsBeyondTheLimitAreRefusedForNow(t *testing.T) {
	a := newAPI(t)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !strings.HasSuffix(q.URL.Path, "/content") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"v1","object":"video","status":"completed","progress":100,"seconds":"4"}`)
			return
		}
		w.Header().Set("Content-Type", "video/mp4")
		_, _ = io.WriteString(w, strings.Repeat("v", 1<<20)) // so much that the headers reach the client
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	provider := a.Provider(t, rig.Provider{BaseURL: server.URL})
	model := a.Model(t, rig.Model{Type: "video", Routes: []rig.Route{{Provider: provider, UpstreamModel: "v", Formats: []string{"videos"}}}})
	id := a.createVideo(t, videos.body(model))
	a.awaitVideo(t, id, "completed")
	q := rig.Request{Path: "/v1/videos/" + id + "/content", Key: a.account.Key}
	const most = 4 // the default of api.max_downloads
	for range most {
		download, err := a.Open(t.Context(), q)
		if err != nil || download.StatusCode != http.StatusOK {
			t.Fatalf("a download: got %v, %v", download, err)
		}
		t.Cleanup(func() { _ = download.Body.Close() })
	}
	a.refusedForNow(t, q, refusal{429, "rate_limit_exceeded", ""}, "too many downloads")
	close(release)
	a.AwaitStatus(t, q, http.StatusOK)
}
