package httpapi

import (
	"context"
	"net"
)

// gathering listens for connections that can gather what is written to them.
type gathering struct{ net.Listener }

// Accept implements net.Listener.
func (l gathering) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // passed through
	}
	return &gathered{Conn: c}, nil
}

// gathered is a client's connection. The server writes a chunk of a stream in
// three parts, each a system call, unless they are gathered. Only the goroutine
// that serves the connection's request writes to it.
type gathered struct {
	net.Conn
	// held is where writes go while they are gathered; nil: they leave.
	held *[]byte
}

// Write implements io.Writer.
func (c *gathered) Write(p []byte) (int, error) {
	if c.held == nil {
		return c.Conn.Write(p)
	}
	*c.held = append(*c.held, p...)
	return len(p), nil
}

// together has all that write writes leave in one piece.
func (c *gathered) together(write func() error) error {
	if c == nil {
		return write() // behind a listener that does not gather
	}
	buffer := getBuffer()
	defer putBuffer(buffer)
	c.held = buffer
	err := write()
	c.held = nil
	if err != nil {
		return err
	}
	_, err = c.Conn.Write(*buffer)
	return err
}

type connKey struct{}

// withConn notes a connection in the context of its requests.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request, nil if it is of another kind.
func connOf(ctx context.Context) *gathered {
	c, _ := ctx.Value(connKey{}).(*gathered)
	return c
}
