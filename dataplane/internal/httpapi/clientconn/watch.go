package clientconn

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// Watch is the context of a request: it ends when the client closes the connection. By default net/http notices that: it
// reads from the connection while a handler runs, in a goroutine that it must interrupt before the next request. Most
// requests need nobody to wait for it, so a Watch that has taken over begins when it is asked for Done.
type Watch struct {
	// Context is that of net/http.
	context.Context //nolint:containedctx // the Watch is a context
	// conn is nil while net/http watches.
	conn *Conn

	mu     sync.Mutex
	begun  context.Context //nolint:containedctx // the child of Context that ends with the connection; nil before Done
	cancel context.CancelFunc
	ended  chan struct{} // closed when the goroutine has ended
}

// TakeOver makes the Watch responsible instead of net/http, if the connection allows that. It is called by the handler of
// a request with a body before it reads the body, because net/http begins to watch at its end. The handler calls End.
func (w *Watch) TakeOver(c *Conn) {
	if c == nil || c.socket == nil || isTLS(c.Conn) {
		return // TLS cannot tell without a read whether the other side has closed the connection
	}
	w.conn, c.selfWatched = c, true
}

func (w *Watch) Done() <-chan struct{} { return w.begin().Done() }

// Err implements context.Context. Before the first call of Done, it does not know that the client has gone; see Gone.
func (w *Watch) Err() error { return w.current().Err() }

func (w *Watch) Value(key any) any { return w.current().Value(key) }

// current returns the context that ends first.
func (w *Watch) current() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun == nil {
		return w.Context
	}
	return w.begun
}

// begin starts the goroutine that waits for the end of the connection, unless it runs already.
func (w *Watch) begin() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		return w.Context
	}
	if w.begun == nil {
		w.begun, w.cancel = context.WithCancel(w.Context)
		w.ended = make(chan struct{})
		_ = w.conn.beginRead() // await reports that a connection is closed
		go w.await()
	}
	return w.begun
}

func (w *Watch) await() {
	defer close(w.ended)
	defer w.conn.endRead()
	if w.conn.socket.awaitInput() {
		w.cancel()
	}
}

// Gone reports whether the client has closed the connection. It looks at the connection, with a system call.
func (w *Watch) Gone() bool {
	return w.Err() != nil || w.conn != nil && w.conn.ClosedByClient()
}

// End ends the watch. net/http then reads the next request.
func (w *Watch) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun != nil {
		_ = w.conn.SetReadDeadline(time.Unix(1, 0)) // a closed connection has ended the goroutine
		<-w.ended
		_ = w.conn.SetReadDeadline(time.Time{})
		w.cancel()
	}
	w.conn, w.begun = nil, nil
}

// awaitInput waits until the client sends something or closes the connection, and reports whether it closes it. A passed
// read deadline ends the wait.
func (s *socket) awaitInput() (closed bool) {
	err := s.raw.Read(func(fd uintptr) bool {
		n, err := peek(fd)
		closed = n <= 0 && !errors.Is(err, syscall.EAGAIN)
		return n > 0 || closed
	})
	return closed || errors.Is(err, net.ErrClosed)
}

// ClosedByClient reports whether the client has closed the connection. It must not use TLS.
func (c *Conn) ClosedByClient() (closed bool) {
	err := c.socket.raw.Control(func(fd uintptr) {
		n, err := peek(fd)
		closed = n <= 0 && !errors.Is(err, syscall.EAGAIN)
	})
	return err != nil || closed
}

// peek looks at the next byte that the client has sent, without waiting for it. It returns 0 without an error at the end.
func peek(fd uintptr) (n int, err error) {
	var one [1]byte
	for {
		if n, _, err = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT); !errors.Is(err, syscall.EINTR) {
			return n, err //nolint:wrapcheck // compared with EAGAIN
		}
	}
}
