package natstest

import (
	"context"
	"net"
	"sync"
	"testing"
)

// A link passes bytes between two servers of a cluster, in both directions. While it is cut, it drops them and closes nothing,
// like a network that loses packets.
type link struct {
	listener net.Listener
	// target returns the address of the server that accepts; empty while that is stopped.
	target func() string

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]bool
}

// newLink returns a link that works until the test ends.
func newLink(t testing.TB, target func() string) *link {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}

	l := &link{listener: listener, target: target, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = listener.Close()
		l.mend()
	})

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(conn)
		}
	}()

	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

// cut drops everything from now on.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
}

// mend lets new connections pass. It closes the others, because a part of their bytes is missing.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
	for conn := range l.conns {
		_ = conn.Close()
	}
	clear(l.conns)
}

// keep reports whether a connection passes. It is closed by mend.
func (l *link) keep(conn net.Conn) (passes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[conn] = true
	return !l.isCut
}

func (l *link) drops() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut
}

// serve connects a server with the target.
func (l *link) serve(from net.Conn) {
	if !l.keep(from) {
		return
	}
	to, err := new(net.Dialer).DialContext(context.Background(), "tcp", l.target())
	if err != nil { // the target is stopped
		_ = from.Close()
		return
	}
	l.keep(to)
	go l.pass(from, to)
	l.pass(to, from)
}

// pass copies from one connection to the other until one of them is closed, and then closes both, unless the link is cut.
func (l *link) pass(from, to net.Conn) {
	const size = 32 << 10
	buffer := make([]byte, size)
	for {
		n, err := from.Read(buffer)
		switch {
		case l.drops() && err == nil:
			continue
		case l.drops():
			return
		}
		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}
