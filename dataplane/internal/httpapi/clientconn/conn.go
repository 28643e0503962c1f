// Package clientconn owns the connections of clients: their number, their write deadlines, and the answers that net/http
// writes by itself, before a handler begins.
package clientconn

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/dataplane/internal/turns"
)

// Config configures a Listener.
type Config struct {
	// MaxConns bounds the number of open connections; zero: no bound.
	MaxConns int64
	// StallTimeout is how long a client may take nothing of its answer.
	StallTimeout time.Duration
	// AnswerFunc returns the answer to a request that no handler has got, as it is written to the connection: the
	// request is no valid HTTP, or there are too many connections. The connection is closed after it.
	AnswerFunc func(status int) []byte
}

// listener wraps accepted connections.
type listener struct {
	net.Listener
	cfg  Config
	open atomic.Int64
}

// Listen returns a Listener whose connections are Conns.
func Listen(l net.Listener, cfg Config) net.Listener { return &listener{Listener: l, cfg: cfg} }

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // passed through
		}

		conn := &Conn{Conn: c, listener: l, socket: socketOf(c)}
		if conn.socket != nil && !isTLS(c) {
			conn.Conn = conn.socket
		}
		if l.open.Add(1) <= l.cfg.MaxConns || l.cfg.MaxConns == 0 {
			return conn, nil
		}

		if isTLS(c) { // an answer would wait for the handshake
			_ = conn.Close()
			continue
		}

		_ = c.SetWriteDeadline(time.Now().Add(ownAnswerTimeout))
		_, _ = c.Write(l.cfg.AnswerFunc(http.StatusServiceUnavailable)) // the connection is closed either way
		_ = conn.Close()
	}
}

// ownAnswerTimeout bounds the writing of an answer that no handler writes. It fits into the buffer of the socket.
const ownAnswerTimeout = time.Second

// Conn is a client connection. Only the goroutine that serves the connection's request writes to it.
type Conn struct {
	net.Conn
	listener *listener
	// socket is below TLS; nil if the connection has none, as in tests. turn is that of the body that is being read.
	socket *socket
	turn   *turns.Turn
	closed atomic.Bool
	// answering is true from the beginning of a handler to the end of its answer.
	answering bool
	// selfWatched says that a Watch notices the end of the connection while a handler runs, not net/http.
	selfWatched bool
	// corked collects writes while it is not nil; otherwise writes go to the network at once.
	corked *[]byte
	// extended is when the write deadline was last moved.
	extended time.Time
	readDeadline
}

func (c *Conn) Close() error {
	if !c.closed.Swap(true) {
		c.listener.open.Add(-1)
	}
	return c.Conn.Close() //nolint:wrapcheck // passed through
}

// CloseWrite lets net/http end its side of a connection first, so that the client reads the answer before it learns of
// the end.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *Conn) Write(p []byte) (int, error) {
	switch {
	case c.corked != nil:
		*c.corked = append(*c.corked, p...)
		return len(p), nil
	case !c.answering:
		return c.writeOwn(p)
	}
	return c.Conn.Write(p)
}

// writeOwn replaces an answer of net/http to a request that no handler has got.
func (c *Conn) writeOwn(p []byte) (int, error) {
	const before, after = len("HTTP/1.1 "), len("HTTP/1.1 400")
	_ = c.SetWriteDeadline(time.Now().Add(ownAnswerTimeout))
	answer := p
	if len(p) > after {
		if status, err := strconv.Atoi(string(p[before:after])); err == nil {
			answer = c.listener.cfg.AnswerFunc(status)
		}
	}
	if _, err := c.Conn.Write(answer); err != nil {
		return 0, err
	}
	return len(p), nil
}

// BeginAnswer says that a handler begins, at the time now. All methods that handlers call do nothing on a nil Conn: the
// server then has a listener of another kind, as in tests.
func (c *Conn) BeginAnswer(now time.Time) {
	if c == nil {
		return
	}
	c.answering = true
	c.ExtendWrite(now)
}

// OnState is the ConnState hook of the server.
func OnState(conn net.Conn, state http.ConnState) {
	if c, ok := conn.(*Conn); ok && state == http.StateIdle {
		c.answering, c.selfWatched = false, false
	}
}

// ExtendWrite gives the client the stall timeout again, though not at every write. It is called before every write:
// without a deadline a client that reads nothing would keep what its answer holds without limit.
func (c *Conn) ExtendWrite(now time.Time) {
	if c == nil {
		return
	}
	limit := c.listener.cfg.StallTimeout
	if now.Sub(c.extended) < limit/4 {
		return
	}
	_ = c.SetWriteDeadline(now.Add(limit)) // a closed connection fails at the next write
	c.extended = now
}

// DeadlineRead sets the time until which the request must be read; zero: no limit.
func (c *Conn) DeadlineRead(at time.Time) {
	if c != nil {
		_ = c.SetReadDeadline(at) // a closed connection fails at the next read
	}
}

// CoalesceWrites calls write and sends everything that it wrote with one system call: net/http writes a chunk of a
// stream in three parts. What net/http has only buffered is not sent.
func (c *Conn) CoalesceWrites(write func() error) error {
	if c == nil {
		return write()
	}
	collected := buffer.Get()
	defer buffer.Put(collected)
	c.corked = collected
	err := write()
	c.corked = nil
	if err != nil || len(*collected) == 0 {
		return err
	}
	_, err = c.Conn.Write(*collected)
	return err
}

// WriteChunk writes a chunk of an answer whose length is not declared. net/http must have sent all that it got before; it
// would take several layers and a formatted number for the same bytes.
func (c *Conn) WriteChunk(data []byte) error {
	chunk := buffer.Get()
	defer buffer.Put(chunk)
	*chunk = append(strconv.AppendInt(*chunk, int64(len(data)), 16), "\r\n"...)
	*chunk = append(append(*chunk, data...), "\r\n"...)
	_, err := c.Conn.Write(*chunk)
	return err
}

// SetWriteDeadline implements net.Conn. net/http removes the deadline after each answer: it stays, because ExtendWrite moves it
// before the writes of the next one. TLS writes at other times, too.
func (c *Conn) SetWriteDeadline(at time.Time) error {
	if at.IsZero() && c.socket != nil && !isTLS(c.Conn) {
		return nil
	}
	c.extended = time.Time{}
	return c.Conn.SetWriteDeadline(at) //nolint:wrapcheck // passed through
}

type contextKey struct{}

// WithConn is the server's ConnContext: it makes a connection available to the requests on it.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// Of returns the connection of a request, nil if it was not accepted by Listen.
func Of(ctx context.Context) *Conn {
	c, _ := ctx.Value(contextKey{}).(*Conn)
	return c
}
