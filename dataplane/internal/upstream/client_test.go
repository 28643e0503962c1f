package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
)

func TestCallsHaveTheGatewaysHeadersOnly(t *testing.T) {
	t.Parallel()
	own := func(more ...string) http.Header {
		h := http.Header{
			"Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "User-Agent": {userAgent}, "Authorization": {"Bearer the-secret"},
		}
		for i := 0; i < len(more); i += 2 {
			if h.Del(more[i]); more[i+1] != "" {
				h.Set(more[i], more[i+1])
			}
		}
		return h
	}
	tests := []struct {
		name   string
		change func(c *provider.Call)
		want   http.Header
	}{
		{"least", func(*provider.Call) {}, own()},
		{
			"chat", func(c *provider.Call) {
				c.Body, c.ContentType, c.Accept = provider.NewBody([]byte("{}"), nil), "application/json", "text/event-stream"
			}, own("Content-Type", "application/json", "Accept", "text/event-stream", "Content-Length", "2"),
		},
		{"messages", func(c *provider.Call) { c.Format = catalogkv.Messages }, own("Anthropic-Version", "2023-06-01")},
		{
			"messages of a version, by key", func(c *provider.Call) {
				c.Format, c.Provider.AnthropicVersion, c.Provider.Auth = catalogkv.Messages, "2031-01-01", "x-api-key"
				c.Beta, c.Provider.Headers = "x,y", map[string]string{"anthropic-beta": "z, x"}
			}, own("Anthropic-Version", "2031-01-01", "Anthropic-Beta", "z,x,y", "Authorization", "", "X-Api-Key", "the-secret"),
		},
		{
			"credential in a header of its own", func(c *provider.Call) { c.Provider.Auth = "api-key" },
			own("Authorization", "", "Api-Key", "the-secret"),
		},
		{
			"static headers, which do not replace the credential", func(c *provider.Call) {
				c.Provider.Headers = map[string]string{"x-region": "eu", "authorization": "other", "user-agent": "custom"}
			}, own("X-Region", "eu", "User-Agent", "custom"),
		},
		{
			"download", func(c *provider.Call) { c.Method, c.Range, c.Accept = http.MethodGet, "bytes=0-9", "video/mp4" },
			own("Range", "bytes=0-9", "Accept", "video/mp4"),
		},
		{
			"creation of a video", func(c *provider.Call) { c.Format, c.IdempotencyKey = catalogkv.Videos, "video_1" },
			own("Idempotency-Key", "video_1", "Content-Length", "0"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachTransport(t, func(t *testing.T, to caller) {
				var got http.Header
				c, done := serve(t, Limits{}, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
				defer done()
				call := to("")
				tt.change(&call)
				answer, err := c.Do(t.Context(), &call)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close() // empty
				if call.Body == nil {
					got.Del("Content-Length") // of an empty POST
					tt.want.Del("Content-Length")
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestRequestAndAnswer(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		var got string
		c, done := serve(t, Limits{}, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			got = fmt.Sprintf("%s %s %s %s %d", r.Method, r.Host, r.URL, body, r.ContentLength)
			w.Header().Set("X-Their-Own", "yes")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "answer")
		})
		defer done()
		call := to("http://host.example:8443/base")
		call.Query = "variant=thumbnail&a=%20b"
		call.Body = provider.NewBody([]byte("question"), nil)
		answer, err := c.Do(t.Context(), &call)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil || string(body) != "answer" || answer.Status != http.StatusTeapot || answer.Length != 6 || answer.Header.Get("X-Their-Own") != "yes" {
			t.Errorf("answer %+v, %q, %v", answer, body, err)
		}
		if err := answer.Body.Close(); err != nil {
			t.Error(err)
		}
		if want := "POST host.example:8443 /base/v1/chat/completions?variant=thumbnail&a=%20b question 8"; got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	})
}

// Both transports send the same escaped target.
func TestTargetIsSentAsItIsEscaped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ base, path, query, want string }{
		{"http://p.example", "/v1/chat/completions", "", "/v1/chat/completions"},
		{"http://p.example/a%2Fb/%C3%BC", "/v1/chat/completions", "", "/a%2Fb/%C3%BC/v1/chat/completions"},
		{"http://p.example/base", "/model/arn:aws:x%2Fy%3Fz/invoke", "a=b%20c", "/base/model/arn:aws:x%2Fy%3Fz/invoke?a=b%20c"},
		{"http://p.example", "/m@1:raw(x)!$&'*+,;=~", "", "/m@1:raw(x)!$&'*+,;=~"},
	} {
		eachTransport(t, func(t *testing.T, to caller) {
			var got string
			c, done := serve(t, Limits{}, func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI })
			defer done()
			call := to(tt.base)
			call.Path, call.Query = tt.path, tt.query
			answer, err := c.Do(t.Context(), &call)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close() // empty
			if got != tt.want {
				t.Errorf("%s and %s: got %s; want %s", tt.base, tt.path, got, tt.want)
			}
		})
	}
}

// writes counts the writes on a connection.
type writes struct {
	net.Conn
	n *atomic.Int64
}

func (w writes) Write(p []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(p)
}

func TestUsualCallIsSentWithOneWrite(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		c, done := serve(t, Limits{}, func(_ http.ResponseWriter, r *http.Request) {
			if n, err := io.Copy(io.Discard, r.Body); n != 8<<10 || err != nil {
				t.Errorf("got %d bytes, %v", n, err)
			}
		})
		defer done()
		var count atomic.Int64
		dial := c.dial
		c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return writes{conn, &count}, err
		}
		for i := range int64(3) {
			call := to("")
			call.Body = provider.NewBody(make([]byte, 8<<10), nil)
			answer, err := c.Do(t.Context(), &call)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close() // empty
			if count.Load() != i+1 {
				t.Errorf("%d requests took %d writes", i+1, count.Load())
			}
		}
	})
}

// readHead reads the head of a request without its body.
func readHead(t *testing.T, r *bufio.Reader) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Errorf("read head: %v", err)
			return
		}
		if line == "\r\n" {
			return
		}
	}
}

func TestEarlyAnswerDoesNotFreeTheBodyThatIsStillSent(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		c := raw(Limits{}, func(_ int, conn net.Conn, r *bufio.Reader) {
			readHead(t, r)
			_, _ = io.WriteString(conn, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\nno")
			_, _ = r.ReadByte()
			time.Sleep(time.Minute) // and reads no further
		})
		var freed atomic.Int64
		call := to("")
		call.Body = provider.NewBody(make([]byte, 1<<20), func() { freed.Add(1) })
		answer, err := c.Do(t.Context(), &call)
		if err != nil {
			t.Fatal(err)
		}
		call.Body.Release()
		synctest.Wait()
		if freed.Load() != 0 {
			t.Error("freed while the transport sends it")
		}
		if body, err := io.ReadAll(answer.Body); string(body) != "no" || err != nil {
			t.Errorf("got %q, %v", body, err)
		}
		_ = answer.Body.Close() // read to its end
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if freed.Load() != 1 {
			t.Errorf("freed %d times; want once", freed.Load())
		}
		c.Close()
	})
}

func TestFailedCallFreesItsBody(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		url  string
		dial error
		cut  bool
	}{
		{"dial", "http://provider.example", errors.New("refused"), false},
		{"address", "http://%zz", nil, false},
		{"truncated", "http://provider.example", nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachTransport(t, func(t *testing.T, to caller) {
				c := raw(Limits{}, func(_ int, _ net.Conn, r *bufio.Reader) { readHead(t, r) })
				if tt.dial != nil {
					c.dial = func(context.Context, string, string) (net.Conn, error) { return nil, tt.dial }
				}
				freed := 0
				call := to(tt.url)
				call.Body = provider.NewBody(make([]byte, 1<<20), func() { freed++ })
				if _, err := c.Do(t.Context(), &call); err == nil {
					t.Error("no error")
				}
				call.Body.Release()
				synctest.Wait()
				if freed != 1 {
					t.Errorf("freed %d times; want once", freed)
				}
			})
		})
	}
}

func TestTimeLimitsEndCalls(t *testing.T) {
	t.Parallel()
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	headOnly := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	oneByte := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	drip := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "x"); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Minute)
		}
	}
	tests := []struct {
		name    string
		limits  Limits
		handler http.HandlerFunc
		want    error
		after   time.Duration
	}{
		{"first byte", limits(func(l *Limits) { l.FirstByte = time.Second }), silent, provider.ErrFirstByteTimeout, time.Second},
		{"first byte after the head", limits(func(l *Limits) { l.FirstByte = time.Second }), headOnly, provider.ErrFirstByteTimeout, time.Second},
		{"idle", limits(func(l *Limits) { l.Idle = time.Second }), oneByte, provider.ErrIdleTimeout, time.Second},
		{"total", limits(func(l *Limits) { l.Total = 5*time.Minute + time.Second }), drip, provider.ErrTotalTimeout, 5*time.Minute + time.Second},
		{"total before the first byte", limits(func(l *Limits) { l.Total = time.Second }), silent, provider.ErrTotalTimeout, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachReadMode(t, func(t *testing.T, to caller, read func(io.Reader) io.Reader) {
				c, done := serve(t, tt.limits, tt.handler)
				defer done()
				begun := time.Now()
				answer, err := c.Do(t.Context(), new(to("")))
				if err == nil {
					_, err = io.ReadAll(read(answer.Body))
					_ = answer.Body.Close() // before its end
				}
				if !errors.Is(err, tt.want) || time.Since(begun) != tt.after {
					t.Errorf("got %v after %v; want %v after %v", err, time.Since(begun), tt.want, tt.after)
				}
			})
		})
	}
}

// A provider that sends something now and then has no limit in all, unless the catalog sets one.
func TestCallThatFlowsHasNoLimit(t *testing.T) {
	t.Parallel()
	eachReadMode(t, func(t *testing.T, to caller, read func(io.Reader) io.Reader) {
		c, done := serve(t, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				time.Sleep(DefaultLimits.Idle * 9 / 10)
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
			}
		})
		defer done()
		answer, err := c.Do(t.Context(), new(to("")))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(read(answer.Body)); len(got) != 10 || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		_ = answer.Body.Close()
	})
}

func TestConnectTimeoutIsUnsentFailure(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, to caller) {
		c := New(limits(func(l *Limits) { l.Connect = time.Second }))
		c.dial = (&pipeListener{conns: make(chan net.Conn)}).dial // accepts no connection
		begun := time.Now()
		_, err := c.Do(t.Context(), new(to("")))
		var failure *provider.Failure
		if !errors.As(err, &failure) || !failure.Unsent || !failure.Failover || time.Since(begun) != time.Second {
			t.Errorf("got %+v after %v; want an unsent call that can fail over after a second", failure, time.Since(begun))
		}
	})
}

func TestSlowReaderDoesNotCountAsSilentProvider(t *testing.T) {
	t.Parallel()
	eachReadMode(t, func(t *testing.T, to caller, read func(io.Reader) io.Reader) {
		c, done := serve(t, limits(func(l *Limits) { l.Idle = time.Second; l.FirstByte = time.Second }), func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(900 * time.Millisecond)
			}
		})
		defer done()
		answer, err := c.Do(t.Context(), new(to("")))
		if err != nil {
			t.Fatal(err)
		}
		got, buf, body := "", make([]byte, 1), read(answer.Body)
		for {
			n, err := body.Read(buf)
			got += string(buf[:n])
			if err != nil {
				if !errors.Is(err, io.EOF) || got != "xxx" {
					t.Errorf("got %q, %v", got, err)
				}
				break
			}
			time.Sleep(time.Minute)
		}
		_ = answer.Body.Close() // read to its end
	})
}

func TestTimeLimitsOfProviderOverrideDefaults(t *testing.T) {
	t.Parallel()
	c := New(Limits{Idle: time.Minute})
	p := &catalog.Provider{}
	want := DefaultLimits
	want.Idle = time.Minute
	if got := c.LimitsOf(p); got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
	p.ConnectTimeoutMS, p.FirstByteTimeoutMS, p.IdleTimeoutMS, p.TotalTimeoutMS = 1, 2, 3, 4
	if got, want := c.LimitsOf(p), (Limits{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond}); got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
}

func TestCanceledCallFailsWithoutCooldown(t *testing.T) {
	t.Parallel()
	eachReadMode(t, func(t *testing.T, to caller, read func(io.Reader) io.Reader) {
		c, done := serve(t, Limits{}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		defer done()
		ctx, cancel := context.WithCancel(t.Context())
		answer, err := c.Do(ctx, new(to("")))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, cancel)
		if _, err := io.ReadAll(read(answer.Body)); !errors.Is(err, context.Canceled) {
			t.Errorf("read: got %v", err)
		}
		_ = answer.Body.Close() // before its end
		_, err = c.Do(ctx, new(to("")))
		var failure *provider.Failure
		if !errors.As(err, &failure) || failure.Failover || failure.RouteCooldown != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("call: got %+v; want no failover", failure)
		}
	})
}

// The creation of a video is not repeated.
func TestCallOnDeadIdleConnectionIsRepeatedWithItsWholeBody(t *testing.T) {
	t.Parallel()
	for _, format := range []catalogkv.Format{catalogkv.Chat, catalogkv.Images, catalogkv.Videos} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			eachTransport(t, func(t *testing.T, to caller) {
				var bodies []string
				c := raw(Limits{}, func(n int, conn net.Conn, r *bufio.Reader) {
					for served := 0; ; served++ {
						request, err := http.ReadRequest(r)
						if err != nil {
							return
						}
						body, err := io.ReadAll(request.Body)
						if err != nil {
							t.Error(err)
						}
						if n == 1 && served == 1 {
							return // closes the connection instead of answering the second request
						}
						bodies = append(bodies, string(body))
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					}
				})
				defer c.Close()
				var err error
				for i := range 2 {
					call := to("")
					call.Format, call.Body = format, provider.NewBody(fmt.Appendf(nil, "body %d", i), nil)
					var answer *provider.Answer
					if answer, err = c.Do(t.Context(), &call); err != nil {
						break
					}
					if _, err := io.ReadAll(answer.Body); err != nil {
						t.Error(err)
					}
					_ = answer.Body.Close() // read to its end
					synctest.Wait()
				}
				want := []string{"body 0", "body 1"}
				if format == catalogkv.Videos {
					want = want[:1]
				}
				if diff := cmp.Diff(want, bodies); diff != "" || (err != nil) != (format == catalogkv.Videos) {
					t.Errorf("error %v, bodies answered (-want +got):\n%s", err, diff)
				}
			})
		})
	}
}

func TestErrorTextsContainNoTextOfTheProvider(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"leaked words\r\n\r\n", "HTTP/1.1 leaked words\r\n\r\n", "HTTP/1.1 200 OK\r\nleaked words\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: leaked words\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: leaked words\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nleaked words\r\n",
	} {
		eachTransport(t, func(t *testing.T, to caller) {
			c := raw(Limits{}, func(_ int, conn net.Conn, r *bufio.Reader) {
				readHead(t, r)
				_, _ = io.WriteString(conn, answer)
			})
			call := to("")
			got, err := c.Do(t.Context(), &call)
			if err == nil {
				_, err = io.ReadAll(got.Body)
				_ = got.Body.Close() // broken
				err = provider.TruncatedFailure(&call, err)
			}
			if text := err.Error(); strings.Contains(text, "leaked") || strings.Contains(text, "the-secret") || !strings.Contains(text, "provider p") {
				t.Errorf("%q: got %q", answer, text)
			}
		})
	}
}

func TestCallsShareTransportsAndHTTP2IsUsedIfConfigured(t *testing.T) {
	t.Parallel()
	c := New(Limits{})
	p := &catalog.Provider{}
	p.ID, p.BaseURL = "p", "https://provider.example"
	first := senderOf(t, c, p)
	if senderOf(t, c, p) != first {
		t.Error("connections are not shared")
	}
	if _, own := first.(*pool); !own {
		t.Errorf("HTTP/1.1 is spoken by %T", first)
	}
	p.HTTP2 = true
	if second, ok := senderOf(t, c, p).(*stdTransport); !ok || !second.transport.ForceAttemptHTTP2 || second.transport.TLSNextProto != nil {
		t.Error("a provider keeps its HTTP/1.1 connections after HTTP/2 was configured")
	}
	p.HTTP2 = false
	p.BaseURL = "https://anbieter-für-modelle.example"
	if third, ok := senderOf(t, c, p).(*stdTransport); !ok || third.transport.ForceAttemptHTTP2 || third.transport.TLSNextProto == nil {
		t.Error("HTTP/2 is used although it is not configured, or a host name is not encoded")
	}
}

func senderOf(t *testing.T, c *Client, p *catalog.Provider) transport {
	t.Helper()
	s, err := c.transportOf(p, catalog.Credential{}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
