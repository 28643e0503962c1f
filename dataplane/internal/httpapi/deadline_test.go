package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/dataplane/internal/httpapi"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/event"
)

// inBubble runs a gateway with in-memory connections and a fake clock.
func inBubble(t *testing.T, o options, test func(t *testing.T, g *gateway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.listener = newPipeListener()
		test(t, newGatewayWith(t, o))
	})
}

func (g *gateway) dial() net.Conn {
	g.t.Helper()
	l, ok := g.client.Transport.(*http.Transport)
	if !ok {
		g.t.Fatal("the client has another transport")
	}
	c, err := l.DialContext(g.t.Context(), "", "")
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

// untilClosed reads until the gateway closes the connection, and returns what it sent and how long that took.
func untilClosed(t *testing.T, c net.Conn, limit time.Duration) (string, time.Duration) {
	t.Helper()
	began := time.Now()
	if err := c.SetReadDeadline(began.Add(limit)); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open after %s", limit)
	}
	return string(data), time.Since(began)
}

func TestUnfinishedRequestsDoNotKeepTheirConnections(t *testing.T) {
	t.Parallel()
	inBubble(t, options{cfg: httpapi.Config{BodyTimeout: time.Minute, MinRate: 1 << 10}}, func(t *testing.T, g *gateway) {
		tests := []struct {
			name, head string
			status     string
			most       time.Duration
		}{
			{"no headers", "POST /v1/chat/completions HTTP/1.1\r\n", "", 10 * time.Second},
			{"no key", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n", "401", 30 * time.Second},
			{"no key, large", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n", "401", 30 * time.Second},
			{"no key, chunked", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "401", 30 * time.Second},
			{"no such path", "POST /v1/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", "404", 30 * time.Second},
			{"GET with a body", "GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n", "200", 30 * time.Second},
			{"too large", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Api-Key: KEY\r\nContent-Length: 60000000\r\n\r\n", "413", 30 * time.Second},
			{"valid", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Api-Key: KEY\r\nContent-Length: 60000\r\n\r\n", "400", 30 * time.Second},
		}
		for _, tt := range tests {
			c := g.dial()
			go func() { _, _ = io.WriteString(c, strings.Replace(tt.head, "KEY", g.key, 1)) }()
			got, took := untilClosed(t, c, time.Hour)
			if !strings.HasPrefix(strings.TrimPrefix(got, "HTTP/1.1 "), tt.status) || took > tt.most {
				t.Errorf("%s: got %.40q after %s; want %s within %s", tt.name, got, took, tt.status, tt.most)
			}
		}
	})
}

// A body that comes too slowly is given up before the time for the whole body has passed; one that comes at the least
// rate is read.
func TestBodyComesAtALeastRate(t *testing.T) {
	t.Parallel()
	inBubble(t, options{cfg: httpapi.Config{BodyTimeout: 2 * time.Minute, MinRate: 10 << 10}}, func(t *testing.T, g *gateway) {
		for _, tt := range []struct {
			rate   int // bytes per second
			status string
			least  time.Duration
			most   time.Duration
		}{{1 << 10, "400", 10 * time.Second, 11 * time.Second}, {9 << 10, "400", 30 * time.Second, 110 * time.Second}, {12 << 10, "400 ", 80 * time.Second, 90 * time.Second}} {
			c := g.dial()
			const length = 1 << 20
			began := time.Now()
			var sending sync.WaitGroup
			sending.Go(func() {
				_, _ = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", g.key, length)
				for sent := 0; sent < length; sent += tt.rate {
					if _, err := io.WriteString(c, strings.Repeat(" ", min(tt.rate, length-sent))); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			})
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(response.Body)
			took := time.Since(began)
			complete := strings.Contains(string(data), "not a valid JSON object")
			if took < tt.least || took > tt.most || complete != (tt.status == "400 ") {
				t.Errorf("%d bytes/s: got %d %s after %s", tt.rate, response.StatusCode, data, took)
			}
			_ = c.Close()
			sending.Wait()
		}
	})
}

// fixedProvider answers every call with the same answer.
type fixedProvider struct {
	contentType string
	body        string
}

func (p fixedProvider) Do(context.Context, *provider.Call) (*provider.Answer, error) {
	return &provider.Answer{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {p.contentType}}, Length: int64(len(p.body)),
		Body: provider.NoAwait{ReadCloser: io.NopCloser(strings.NewReader(p.body))},
	}, nil
}

var (
	imageAnswer = `{"created":1,"data":[{"b64_json":"` + strings.Repeat("A", 2<<20) + `"}]}`
	imageBody   = `{"model":"image","prompt":"x"}`
)

func (g *gateway) sendImageRequest(c net.Conn) {
	g.t.Helper()
	if _, err := fmt.Fprintf(c, "POST /v1/images/generations HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n%s", g.key, len(imageBody), imageBody); err != nil {
		g.t.Fatal(err)
	}
}

func TestAnswerThatNobodyTakesIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, options{routes: 1, providers: fixedProvider{"application/json", imageAnswer}}, func(t *testing.T, g *gateway) {
		c := g.dial()
		g.sendImageRequest(c)
		if e := g.spool.next(t); e.Status != event.Completed {
			t.Errorf("got event %+v", e)
		}
		synctest.Wait()
		if used := g.budget.Used(); used < int64(len(imageAnswer)) {
			t.Errorf("%d bytes of the budget are in use for an answer of %d", used, len(imageAnswer))
		}
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if used := g.budget.Used(); used != 0 {
			t.Errorf("%d bytes of the budget are in use after the stall timeout", used)
		}
	})
}

// net/http removes the write deadline after each answer.
func TestLaterAnswerOnAConnectionThatNobodyTakesIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, options{routes: 1, providers: fixedProvider{"application/json", imageAnswer}}, func(t *testing.T, g *gateway) {
		c := g.dial()
		g.sendImageRequest(c)
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		g.sendImageRequest(c)
		for range 2 {
			if e := g.spool.next(t); e.Status != event.Completed {
				t.Errorf("got event %+v", e)
			}
		}
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if used := g.budget.Used(); used != 0 {
			t.Errorf("%d bytes of the budget are in use after the stall timeout", used)
		}
	})
}

// Without a least rate, a client could hold an answer for days.
func TestAnswerThatIsTakenTooSlowlyIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, options{routes: 1, providers: fixedProvider{"application/json", imageAnswer}, cfg: httpapi.Config{MinRate: 16 << 10}}, func(t *testing.T, g *gateway) {
		for rate, complete := range map[int]bool{4 << 10: false, 16 << 10: true} {
			c := g.dial()
			g.sendImageRequest(c)
			n, err := 0, error(nil)
			for piece := make([]byte, rate); err == nil && n < len(imageAnswer); time.Sleep(time.Second) {
				var more int
				more, err = io.ReadFull(c, piece)
				n += more
			}
			if (n >= len(imageAnswer)) != complete {
				t.Errorf("%d bytes/s: the client got %d bytes of %d", rate, n, len(imageAnswer))
			}
			_ = c.Close()
		}
	})
}

func TestDownloadThatNobodyTakesIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, options{routes: 1, providers: fixedProvider{"video/mp4", strings.Repeat("v", 1<<20)}}, func(t *testing.T, g *gateway) {
		id := g.completedVideo()
		var downloads []net.Conn
		begin := func() *bufio.Reader {
			c := g.dial()
			if _, err := fmt.Fprintf(c, "GET /v1/videos/%s/content HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n\r\n", id, g.key); err != nil {
				t.Fatal(err)
			}
			downloads = append(downloads, c)
			return bufio.NewReader(c)
		}
		status := func(r *bufio.Reader) int {
			response, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close
			return response.StatusCode
		}
		for range 4 {
			if got := status(begin()); got != http.StatusOK {
				t.Fatalf("got %d", got)
			}
		}
		if got := status(begin()); got != http.StatusTooManyRequests {
			t.Errorf("the fifth download: got %d", got)
		}
		time.Sleep(2*time.Minute + time.Second)
		if got := status(begin()); got != http.StatusOK {
			t.Errorf("after the stall timeout: got %d", got)
		}
		for _, c := range downloads {
			_ = c.Close()
		}
	})
}

// completedVideo records a video job that has completed, and returns its id.
func (g *gateway) completedVideo() string {
	g.t.Helper()
	v := event.Video{V: event.Version, ID: "video_1", AccountID: theAccount, Model: "video", Provider: "prv_0", Route: "rte_0_video", Credential: "crd_0", UpstreamID: "up_1", Status: event.VideoCompleted}
	g.plane.set(func(p *controlPlane) { p.videos[v.ID] = v })
	return v.ID
}

// An event that comes in many reads is held until it is complete. The provider has been paid for it, so it waits for room,
// and is charged if none becomes free.
func TestStreamWithoutRoomForItsEventIsEndedAndCharged(t *testing.T) {
	t.Parallel()
	event := "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + strings.Repeat("A", 8*mib) + "\"}}]}\n\n"
	inBubble(t, options{routes: 1, providers: fixedProvider{"text/event-stream", event + chatStop + chatUsage + chatDone}, budget: 80 * mib}, func(t *testing.T, g *gateway) {
		others := g.budget.Begin("somebody")
		if err := others.Grow(70 * mib); err != nil {
			t.Fatal(err)
		}
		ask := func() int {
			c := g.dial()
			defer func() { _ = c.Close() }()
			if _, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n%s", g.key, len(chatStreamBody), chatStreamBody); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			return response.StatusCode
		}
		if got := ask(); got != http.StatusServiceUnavailable {
			t.Errorf("got %d; want 503", got)
		}
		if e := g.spool.next(t); e.Cost == 0 || e.Cost != e.Reservation || !e.Estimated || e.HTTPStatus != http.StatusServiceUnavailable {
			t.Errorf("got event %+v", e)
		}
		others.Release()
		if got := ask(); got != http.StatusOK {
			t.Errorf("with room: got %d", got)
		}
		if e := g.spool.next(t); e.Cost == 0 {
			t.Errorf("got event %+v", e)
		}
		synctest.Wait()
		if used := g.budget.Used(); used != 0 {
			t.Errorf("%d bytes of the budget are in use", used)
		}
	})
}
