package upstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/platform/testkit/await"
)

// patient is for tests over real connections, which take as long as the machine is busy.
var patient = Limits{
	Connect:   time.Hour,
	FirstByte: time.Hour,
	Idle:      time.Hour,
}

// Every answer is followed by another call.
func TestConnectionIsReusedIfTheAnswerAllowsIt(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	tests := []struct {
		name, answer, want string
		// again: on the same connection; ends: the provider closes it; own: only our client promises it.
		again, ends, own bool
	}{
		{name: "length", answer: ok, want: "ok", again: true},
		{name: "chunks", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n", want: "ok", again: true},
		{
			name:   "chunks and trailers",
			answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n", want: "ok", again: true,
		},
		{name: "no content", answer: "HTTP/1.1 204 No Content\r\n\r\n", again: true},
		{name: "nothing", answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", again: true},
		{name: "interim answers", answer: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok, want: "ok", again: true},
		{name: "body up to the end of the connection", answer: "HTTP/1.1 200 OK\r\n\r\nok", want: "ok", ends: true},
		{name: "close", answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", want: "ok"},
		{name: "old version", answer: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", want: "ok"},
		// net/http may send the second call before it has seen what is left of the first answer.
		{name: "more bytes than declared", answer: ok + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother", want: "ok", own: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachTransport(t, func(t *testing.T, to caller) {
				if tt.own && to("").Provider.HTTP2 {
					return
				}
				var conns atomic.Int64
				c := raw(Limits{}, func(n int, conn net.Conn, r *bufio.Reader) {
					conns.Store(int64(n))
					for {
						request, err := http.ReadRequest(r)
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, request.Body)
						if n > 1 || request.Header.Get("Idempotency-Key") == "second" {
							_, _ = io.WriteString(conn, ok)
							continue
						}
						if _, _ = io.WriteString(conn, tt.answer); tt.ends {
							return
						}
					}
				})
				defer c.Close()
				for i, want := range []string{tt.want, "ok"} {
					call := to("")
					call.Body = provider.NewBody([]byte("{}"), nil)
					if i == 1 {
						call.IdempotencyKey = "second"
					}
					answer, err := c.Do(t.Context(), &call)
					if err != nil {
						t.Fatal(err)
					}
					if body, err := io.ReadAll(answer.Body); string(body) != want || err != nil {
						t.Errorf("answer %d: got %q, %v", i+1, body, err)
					}
					_ = answer.Body.Close() // read to its end
				}
				if got := conns.Load(); (got == 1) != tt.again {
					t.Errorf("%d connections for two calls", got)
				}
			})
		})
	}
}

func TestTruncatedOrInvalidAnswersAreErrors(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"nothing":               "",
		"half a head":           "HTTP/1.1 200 OK\r\nContent-Le",
		"too short":             "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
		"half a chunk":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
		"no last chunk":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
		"two lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		"endless head":          "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 12<<20) + "\r\nContent-Length: 2\r\n\r\nok",
		"endless interim":       strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1<<20),
		"another protocol":      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"garbage for a version": "SIP/2.0 200 OK\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachReadMode(t, func(t *testing.T, to caller, read func(io.Reader) io.Reader) {
				closed := make(chan struct{})
				c := raw(Limits{}, func(_ int, conn net.Conn, r *bufio.Reader) {
					defer close(closed)
					readHead(t, r)
					_, _ = io.WriteString(conn, answer) // until the client has read it or closed the connection
				})
				got, err := c.Do(t.Context(), new(to("")))
				if err == nil {
					_, err = io.ReadAll(read(got.Body))
					_ = got.Body.Close() // broken
				}
				if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && answer != "" {
					t.Errorf("got %v", err)
				}
				<-closed // even if the client stops reading before the end
			})
		})
	}
}

func TestAnswerOfProviderThatDoesNotReadTheCallIsRead(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			head := make([]byte, 1024)
			_, _ = io.ReadAtLeast(conn, head, len(head)) // the head and a little more
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn) // otherwise a reset discards the answer
			_ = conn.Close()
		}
	}()
	c := New(patient)
	defer c.Close()
	for range 20 {
		call := call("http://" + listener.Addr().String())
		call.Body = provider.NewBody(make([]byte, 8<<20), nil)
		answer, err := c.Do(t.Context(), &call)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(answer.Body); answer.Status != http.StatusRequestEntityTooLarge || string(body) != "no" || err != nil {
			t.Fatalf("got %d, %q, %v", answer.Status, body, err)
		}
		_ = answer.Body.Close()
	}
}

// The creation of a video, which must not be sent twice, is not lost on a closed connection either.
func TestClosedIdleConnectionIsDetectedBeforeSending(t *testing.T) {
	t.Parallel()
	var got atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	defer server.Close()
	c := New(patient)
	defer c.Close()
	for i := range int64(10) {
		call := call(server.URL)
		call.Format, call.Body = catalogkv.Videos, provider.NewBody([]byte("{}"), nil)
		answer, err := c.Do(t.Context(), &call)
		if err != nil || got.Load() != i+1 {
			t.Fatalf("call %d: %v, %d have arrived", i+1, err, got.Load())
		}
		_ = answer.Body.Close()
		idle := c.onlyPool(t).idle
		if len(idle) != 1 {
			t.Fatalf("%d idle connections", len(idle))
		}
		server.CloseClientConnections()
		await.Until(t, "the end of the connection to arrive", func() bool { return !idle[0].canServe() })
	}
}

// onlyPool returns the only pool of a client.
func (c *Client) onlyPool(t *testing.T) *pool {
	t.Helper()
	for _, s := range c.transports {
		return s.(*pool)
	}
	t.Fatal("no pool")
	return nil
}

func TestIdleConnectionsAreClosedAfterTheIdleTimeout(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		var open atomic.Int64
		c := raw(Limits{}, func(_ int, conn net.Conn, r *bufio.Reader) {
			open.Add(1)
			defer open.Add(-1)
			for {
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				time.Sleep(time.Second) // so that the calls overlap
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		})
		defer c.Close()
		calls := func(n int) {
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					answer, err := c.Do(t.Context(), new(to("")))
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				})
			}
			all.Wait()
		}
		calls(3)
		time.Sleep(idleConnTimeout / 2)
		calls(1)
		if open.Load() != 3 {
			t.Errorf("%d connections; want 3", open.Load())
		}
		time.Sleep(idleConnTimeout/2 + 5*time.Second)
		if open.Load() != 1 {
			t.Errorf("%d connections are left; want the one that was used", open.Load())
		}
		time.Sleep(idleConnTimeout)
		if open.Load() != 0 {
			t.Errorf("%d connections are left", open.Load())
		}
	})
}

// The calls are large and small, go over TLS, and some of them are canceled.
func TestConcurrentCallsGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // canceled
		}
		if len(body)%3 == 0 {
			_ = http.NewResponseController(w).Flush() // chunked
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
	c := New(patient)
	defer c.Close()
	target := call(server.URL)
	_, roots := testCertificate()
	trust(t, c, target.Provider, roots)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 40 {
				text := strings.Repeat(strconv.Itoa(worker)+" "+strconv.Itoa(i)+",", 1+i*i*7)
				if err := echo(t, c, target, text, i%5 == 4); err != nil {
					t.Errorf("worker %d, call %d: %v", worker, i, err)
				}
			}
		})
	}
	all.Wait()
}

// echo sends a text and expects it back, unless it cancels the call before.
func echo(t *testing.T, c *Client, call provider.Call, text string, leave bool) error {
	var freed atomic.Int64
	body := provider.NewBody([]byte(text), func() { freed.Add(1) })
	call.Body = body
	answer, err := c.Do(t.Context(), &call)
	if err != nil {
		return err
	}
	body.Release()
	if leave {
		_ = answer.Body.Close()
		return nil
	}
	got, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || string(got) != text {
		return fmt.Errorf("got %d bytes, %w; want %d of its own", len(got), err, len(text))
	}
	return nil
}

func TestNothingIsSentWithoutValidCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a call has arrived") }))
	server.Config.ErrorLog = nil
	defer server.Close()
	c := New(patient)
	defer c.Close()
	_, err := c.Do(t.Context(), new(call(server.URL)))
	if _, unknown := errors.AsType[*tls.CertificateVerificationError](err); !unknown {
		t.Errorf("got %v", err)
	}
}
