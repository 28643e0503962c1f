package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/shared/catalogkv"
)

// pipeListener is a listener for connections through pipes, for use in a synctest bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (f *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

func (f *pipeListener) Close() error {
	select {
	case <-f.done:
	default:
		close(f.done)
	}
	return nil
}

func (f *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "far", Net: "pipe"} }

// pipe returns the two ends of a connection. The near one can say, like a socket, whether it has input.
func pipe() (nearEnd, farEnd) {
	near, far := net.Pipe()
	input := &pipeInput{}
	return nearEnd{near, input}, farEnd{far, input}
}

// pipeInput counts the bytes that have been sent to the near end of a pipe and are unread.
type pipeInput struct {
	unread atomic.Int64
	ended  atomic.Bool
}

type nearEnd struct {
	net.Conn
	input *pipeInput
}

func (e nearEnd) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	e.input.unread.Add(-int64(n))
	return n, err
}

func (e nearEnd) hasInput() bool { return e.input.unread.Load() > 0 || e.input.ended.Load() }

type farEnd struct {
	net.Conn
	input *pipeInput
}

func (e farEnd) Write(p []byte) (int, error) {
	e.input.unread.Add(int64(len(p)))
	return e.Conn.Write(p)
}

func (e farEnd) Close() error {
	e.input.ended.Store(true)
	return e.Conn.Close()
}

func (f *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, other := pipe()
	select {
	case f.conns <- other:
		return near, nil
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: ctx.Err()}
	}
}

// serve returns a Client whose calls all reach the handler, whatever the provider. The test defers the cleanup, which
// belongs to its bubble.
func serve(t *testing.T, limits Limits, handler http.HandlerFunc) (*Client, func()) {
	t.Helper()
	c, f := New(limits), &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	c.dial = f.dial
	server := &http.Server{Handler: handler}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(f); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}()
	return c, func() {
		c.Close()
		_ = server.Close() // its connections are pipes
		<-ended
		time.Sleep(time.Hour) // handlers see the end of the connection
		synctest.Wait()
	}
}

// raw returns a Client that calls handle for each connection, with the number of the connection.
func raw(limits Limits, handle func(n int, conn net.Conn, r *bufio.Reader)) *Client {
	c := New(limits)
	var conns atomic.Int64
	c.dial = func(context.Context, string, string) (net.Conn, error) {
		near, other := pipe()
		n := int(conns.Add(1))
		go func() {
			defer func() { _ = other.Close() }()
			handle(n, other, bufio.NewReader(other))
		}()
		return near, nil
	}
	return c
}

// caller makes a call to a provider at an address, by default an arbitrary one.
type caller func(address string) provider.Call

// eachTransport runs a test in a bubble with each transport.
func eachTransport(t *testing.T, test func(t *testing.T, to caller)) {
	t.Helper()
	for _, library := range []bool{false, true} {
		t.Run(map[bool]string{false: "own", true: "library"}[library], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, func(address string) provider.Call {
					c := call(address)
					c.Provider.HTTP2 = library // without TLS, net/http speaks HTTP/1.1 here, too
					return c
				})
			})
		})
	}
}

// eachReadMode runs a test with each transport, with and without Await before each read.
func eachReadMode(t *testing.T, test func(t *testing.T, to caller, read func(io.Reader) io.Reader)) {
	t.Helper()
	for name, read := range map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r },
		"awaited": func(r io.Reader) io.Reader { return awaitingReader{r} },
	} {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, to caller) { test(t, to, read) })
		})
	}
}

// awaitingReader calls Await before each read.
type awaitingReader struct{ io.Reader }

func (a awaitingReader) Read(p []byte) (int, error) {
	if b, ok := a.Reader.(provider.AnswerBody); ok {
		if err := b.Await(); err != nil {
			return 0, err
		}
	}
	return a.Reader.Read(p)
}

// call returns a call to a provider at an address, by default an arbitrary one.
func call(address string) provider.Call {
	p := catalog.Provider{}
	if p.ID, p.BaseURL = "p", address; address == "" {
		p.BaseURL = "http://provider.example"
	}
	c := provider.Call{Format: catalogkv.Chat, Path: "/v1/chat/completions"}
	c.Choice.Route = &catalog.Route{Provider: &p}
	c.Credential = catalog.NewCredential("crd", "the-secret")
	return c
}

// limits returns time limits that differ widely, so that the duration of a call shows which of them has ended it.
func limits(change func(l *Limits)) Limits {
	l := Limits{Connect: 7 * time.Minute, FirstByte: 8 * time.Minute, Idle: 9 * time.Minute, Total: 10 * time.Minute}
	change(&l)
	return l
}

// trust makes a client trust certificates for its calls to a provider at 127.0.0.1.
func trust(t testing.TB, c *Client, p *catalog.Provider, roots *x509.CertPool) {
	t.Helper()
	trusting := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	made, err := c.transportOf(p, catalog.Credential{}, c.LimitsOf(p).Connect)
	if err != nil {
		t.Fatal(err)
	}
	switch s := made.(type) {
	case *pool:
		s.tlsConfig = trusting
	case *stdTransport:
		s.transport.TLSClientConfig = trusting
	}
}

// testCertificate returns the settings of a server with the certificate of httptest, and a pool that trusts it.
var testCertificate = sync.OnceValues(func() (*tls.Config, *x509.CertPool) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return &tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12}, roots
})
