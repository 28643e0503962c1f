package clientconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"modelgateway/dataplane/internal/turns"
)

// readStep is how much of a body is read before the turn yields to another account, in bytes: the kernel copies it in
// about 0.1 ms.
const readStep = 512 << 10

// socket is a TCP connection whose reads can be part of a turn: the turn runs while there are bytes to read, and ends
// while the client sends none.
type socket struct {
	*net.TCPConn
	raw  syscall.RawConn
	turn *turns.Turn
	// taken counts the bytes that were read since the turn last yielded.
	taken int
}

// Sockets prepares the connections of a listener below TLS for reading in turns.
func Sockets(l net.Listener) net.Listener { return socketListener{l} }

type socketListener struct{ net.Listener }

func (l socketListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // passed through
	}
	if s := socketOf(c); s != nil {
		return s, nil
	}
	return c, nil
}

func isTLS(c net.Conn) bool {
	_, ok := c.(*tls.Conn)
	return ok
}

// socketOf returns the socket of a connection, nil if it has none.
func socketOf(c net.Conn) *socket {
	switch c := c.(type) {
	case *tls.Conn:
		s, _ := c.NetConn().(*socket)
		return s
	case *socket:
		return c
	case *net.TCPConn:
		if raw, err := c.SyscallConn(); err == nil {
			return &socket{TCPConn: c, raw: raw}
		}
	}
	return nil
}

// ReadInTurn makes the reads of a body part of its turn while that runs; nil ends this. It reports whether the connection
// can do that.
func (c *Conn) ReadInTurn(t *turns.Turn) bool {
	if c == nil || c.socket == nil {
		return false
	}
	c.turn = t
	return true
}

// read reads within the turn of a body, if there is one.
func (c *Conn) read(p []byte) (int, error) {
	// net/http waits for the client's next request with reads of one byte, in a goroutine of its own.
	if len(p) <= 1 || c.turn == nil || !c.turn.Running() {
		return c.Conn.Read(p)
	}
	c.socket.turn = c.turn
	n, err := c.Conn.Read(p)
	c.socket.turn = nil
	return n, err
}

func (s *socket) Read(p []byte) (int, error) {
	if s.turn == nil {
		return s.TCPConn.Read(p)
	}
	return s.readInTurn(p)
}

// readInTurn is Read within a turn. It is a function of its own because its variables are on the heap.
func (s *socket) readInTurn(p []byte) (n int, err error) {
	if s.taken >= readStep {
		s.taken = 0
		s.turn.Yield()
	}

	p = p[:min(len(p), readStep)]
	var failed error
	err = s.raw.Read(func(fd uintptr) bool {
		s.turn.Begin()
		for {
			if n, failed = syscall.Read(int(fd), p); !errors.Is(failed, syscall.EINTR) {
				break
			}
		}
		if errors.Is(failed, syscall.EAGAIN) {
			s.turn.End()
			return false
		}
		return true
	})

	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, fmt.Errorf("clientconn: %w", os.NewSyscallError("read", failed))
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}

	s.taken += n
	return n, nil
}
