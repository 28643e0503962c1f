package httpapi

import (
	"context"
	"net"
)

// corkListener wraps accepted connections so that their writes can be coalesced.
type corkListener struct{ net.Listener }

// Accept implements net.Listener.
func (l corkListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // passed through
	}
	return &corkConn{Conn: c}, nil
}

// corkConn is a client connection. net/http writes a chunk of a stream in three parts, each of them a system call,
// unless coalesceWrites joins them. Only the goroutine that serves the connection's request writes to it.
type corkConn struct {
	net.Conn
	// corked collects writes while it is not nil; otherwise writes go to the network at once.
	corked *[]byte
}

// Write implements io.Writer.
func (c *corkConn) Write(p []byte) (int, error) {
	if c.corked == nil {
		return c.Conn.Write(p)
	}
	*c.corked = append(*c.corked, p...)
	return len(p), nil
}

// coalesceWrites calls write and sends everything that it wrote with one system call. A nil corkConn only calls write.
func (c *corkConn) coalesceWrites(write func() error) error {
	if c == nil {
		return write() // the listener is not a corkListener
	}
	buffer := getBuffer()
	defer putBuffer(buffer)
	c.corked = buffer
	err := write()
	c.corked = nil
	if err != nil {
		return err
	}
	_, err = c.Conn.Write(*buffer)
	return err
}

type clientConnKey struct{}

// withClientConn is the server's ConnContext: it makes a connection available to the requests on it.
func withClientConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, clientConnKey{}, c)
}

// clientConn returns the connection of a request, nil if it was not accepted by a corkListener.
func clientConn(ctx context.Context) *corkConn {
	c, _ := ctx.Value(clientConnKey{}).(*corkConn)
	return c
}
