package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/platform/testkit/await"
)

// strangeConn is a connection to a provider that breaks the rules of HTTP.
type strangeConn struct {
	net.Conn
	in *bufio.Reader
	// socket is the connection below TLS; gathered holds back what is written to it.
	socket *gatheringConn
}

// gatheringConn holds writes back, so that several TLS records leave together, or a part of one.
type gatheringConn struct {
	net.Conn
	gathers bool
	held    []byte
}

func (g *gatheringConn) Write(p []byte) (int, error) {
	if g.gathers {
		g.held = append(g.held, p...)
		return len(p), nil
	}
	return g.Conn.Write(p)
}

// request reads the next request. It returns its customer, or "" at the end of the connection.
func (c *strangeConn) request() (who string) {
	request, err := http.ReadRequest(c.in)
	if err != nil {
		return ""
	}
	if _, err := io.Copy(io.Discard, request.Body); err != nil {
		return ""
	}
	return request.Header.Get("Anthropic-Beta")
}

func (c *strangeConn) send(text string) { _, _ = io.WriteString(c.Conn, text) }

// sendTogether sends texts as TLS records of their own, but with one write. Only the first cut bytes of the last record
// leave, the others when the returned function is called.
func (c *strangeConn) sendTogether(cut int, texts ...string) (rest func()) {
	c.socket.gathers = true
	last := 0
	for _, text := range texts {
		last = len(c.socket.held)
		c.send(text)
	}
	held := c.socket.held
	c.socket.gathers, c.socket.held = false, nil
	if cut > 0 {
		last += cut
	} else {
		last = len(held)
	}
	_, _ = c.socket.Conn.Write(held[:last])
	return func() { _, _ = c.socket.Conn.Write(held[last:]) }
}

// answerFor is a proper answer to a customer.
func answerFor(who string) string { return answer("for " + who) }

func answer(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// serveProperly answers requests until the connection ends.
func (c *strangeConn) serveProperly() {
	for {
		who := c.request()
		if who == "" {
			return
		}
		c.send(answerFor(who))
	}
}

// strangeProvider is a provider whose first connection is served by first, and the others properly.
type strangeProvider struct {
	url   string
	roots *x509.CertPool

	mu    sync.Mutex
	conns []net.Conn
	// ended is closed when the first connection has ended.
	ended chan struct{}
}

// newStrangeProvider starts a provider. It ends with the test.
func newStrangeProvider(t *testing.T, secure bool, first func(c *strangeConn)) *strangeProvider {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &strangeProvider{url: "http://" + listener.Addr().String(), ended: make(chan struct{})}
	var config *tls.Config
	if secure {
		p.url = "https://" + listener.Addr().String()
		config, p.roots = testCertificate()
	}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 1; ; n++ {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(n, socket, config, first) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		all.Wait()
	})
	return p
}

func (p *strangeProvider) serve(n int, socket net.Conn, config *tls.Config, first func(c *strangeConn)) {
	c := &strangeConn{socket: &gatheringConn{Conn: socket}}
	p.mu.Lock()
	p.conns = append(p.conns, socket)
	p.mu.Unlock()
	c.Conn = c.socket
	if config != nil {
		c.Conn = tls.Server(c.socket, config)
	}
	c.in = bufio.NewReader(c.Conn)
	defer func() { _ = c.Close() }()
	if n > 1 {
		c.serveProperly()
		return
	}
	defer close(p.ended)
	first(c)
}

// outcome is the result of a call: its answer, and the kind of its error.
type outcome struct {
	status     int
	body, fail string
}

// callAs makes a call for a customer. padding is the size of its prompt.
func callAs(ctx context.Context, c *Client, to provider.Call, who string, padding int) outcome {
	to.Beta = who // a header that says whose call it is
	to.Body = provider.NewBody(make([]byte, padding), nil)
	answer, err := c.Do(ctx, &to)
	if err != nil {
		return outcome{fail: "no answer"}
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	o := outcome{status: answer.Status, body: string(body)}
	if err != nil {
		o.fail = "broken answer"
	}
	return o
}

// client returns a client of the provider, a call to it, and a function that counts the connections.
func (p *strangeProvider) client(t *testing.T, library bool) (*Client, provider.Call, func() int64) {
	t.Helper()
	c, to := New(patient), call(p.url)
	c.standard = library
	t.Cleanup(c.Close)
	conns := countConns(c)
	if p.roots != nil {
		trust(t, c, to.Provider, p.roots)
	}
	return c, to, conns
}

// eachWire runs a test over TCP and over TLS.
func eachWire(t *testing.T, test func(t *testing.T, secure bool)) {
	t.Helper()
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "TCP", true: "TLS"}[secure], func(t *testing.T) {
			t.Parallel()
			test(t, secure)
		})
	}
}

// A provider, or a front end of it, answers a request twice. The second answer comes with the first one or later, and
// over TLS in the same record, in another one, or in a part of one.
func TestSecondAnswerToACallReachesNobody(t *testing.T) {
	t.Parallel()
	second := answer("SECOND for alice")
	for name, send := range map[string]func(c *strangeConn, first string) (rest func()){
		"at once": func(c *strangeConn, first string) func() { c.send(first + second); return nil },
		"in a write of its own": func(c *strangeConn, first string) func() {
			c.send(first)
			c.send(second)
			return nil
		},
		"in another record":                   func(c *strangeConn, first string) func() { return c.sendTogether(0, first, second) },
		"in a part of a record":               func(c *strangeConn, first string) func() { return c.sendTogether(9, first, second) },
		"in a part of the header of a record": func(c *strangeConn, first string) func() { return c.sendTogether(3, first, second) },
		"byte by byte": func(c *strangeConn, first string) func() {
			for i := range len(first) + len(second) {
				c.send((first + second)[i : i+1])
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachWire(t, func(t *testing.T, secure bool) {
				sent, next := make(chan struct{}), make(chan struct{})
				p := newStrangeProvider(t, secure, func(c *strangeConn) {
					rest := send(c, answerFor(c.request()))
					close(sent)
					<-next
					if rest != nil {
						rest()
					}
					c.serveProperly()
				})
				c, to, _ := p.client(t, false)
				if got, want := callAs(t.Context(), c, to, "alice", 2), (outcome{200, "for alice", ""}); got != want {
					t.Fatalf("alice: got %+v; want %+v", got, want)
				}
				<-sent
				if pool := c.onlyPool(t); len(pool.idle) == 1 {
					awaitUnread(t, pool.idle[0])
				}
				close(next)
				for _, who := range []string{"bob", "carol", "dave"} {
					if got, want := callAs(t.Context(), c, to, who, 2), (outcome{200, "for " + who, ""}); got != want {
						t.Errorf("%s: got %+v; want %+v", who, got, want)
					}
				}
			})
		})
	}
}

// awaitUnread waits until something unread lies on a connection.
func awaitUnread(t *testing.T, c *conn) {
	t.Helper()
	await.Until(t, "something unread on a connection", func() bool { return !c.canServe() })
}

// The provider takes the rest of the prompt for a further request and answers that one, too.
func TestConnectionIsNotReusedAfterAnAnswerThatBeganBeforeItsCallWasSent(t *testing.T) {
	t.Parallel()
	eachWire(t, func(t *testing.T, secure bool) {
		rest := make(chan struct{})
		p := newStrangeProvider(t, secure, func(c *strangeConn) {
			request, err := http.ReadRequest(c.in)
			if err != nil {
				return
			}
			answer := answerFor(request.Header.Get("Anthropic-Beta"))
			c.send(answer[:len(answer)-1])
			<-rest
			_, _ = io.Copy(io.Discard, request.Body)
			c.send(answer[len(answer)-1:])
			c.serveProperly()
		})
		c, to, conns := p.client(t, false)
		to.Beta = "alice"
		to.Body = provider.NewBody(make([]byte, 32<<20), nil) // more than the buffers of both kernels hold
		early, err := c.Do(t.Context(), &to)
		if err != nil {
			t.Fatal(err)
		}
		close(rest)
		if body, err := io.ReadAll(early.Body); string(body) != "for alice" || err != nil {
			t.Fatalf("alice: got %q, %v", body, err)
		}
		_ = early.Body.Close() // read to its end
		awaitIdleOrClosed(t, c, p)
		if got, want := callAs(t.Context(), c, to, "bob", 2), (outcome{200, "for bob", ""}); got != want {
			t.Errorf("bob: got %+v; want %+v", got, want)
		}
		if conns() != 2 {
			t.Errorf("%d connections for two calls", conns())
		}
	})
}

func TestConnectionIsReusedAfterALargeCall(t *testing.T) {
	t.Parallel()
	eachWire(t, func(t *testing.T, secure bool) {
		p := newStrangeProvider(t, secure, (*strangeConn).serveProperly)
		c, to, conns := p.client(t, false)
		for range 3 {
			if got, want := callAs(t.Context(), c, to, "alice", 1<<20), (outcome{200, "for alice", ""}); got != want {
				t.Fatalf("got %+v; want %+v", got, want)
			}
			awaitIdleOrClosed(t, c, p)
		}
		if conns() != 1 {
			t.Errorf("%d connections for three calls", conns())
		}
	})
}

// countConns returns a function that reports how many connections a client has made since. It is called before the first
// call.
func countConns(c *Client) func() int64 {
	var made atomic.Int64
	dial := c.dial
	c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		made.Add(1)
		return dial(ctx, network, address)
	}
	return made.Load
}

// awaitIdleOrClosed waits until the first connection of a client is idle or closed.
func awaitIdleOrClosed(t *testing.T, c *Client, p *strangeProvider) {
	t.Helper()
	pool := c.onlyPool(t)
	await.Until(t, "the connection to be idle or closed", func() bool {
		select {
		case <-p.ended:
			return true
		default:
		}
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return len(pool.idle) > 0
	})
}
