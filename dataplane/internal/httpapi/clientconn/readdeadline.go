package clientconn

import (
	"sync"
	"time"
)

// readDeadline is the read deadline of a connection. net/http and the reading of a body move it seven times for a usual
// request, which makes one read; so it is handed to the connection when a read begins.
type readDeadline struct {
	mu sync.Mutex
	// wanted is the deadline, set the one that the connection has.
	wanted, set time.Time
	reading     bool
}

func (c *Conn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = at
	if !c.reading {
		return nil // a closed connection fails at the next read
	}
	return c.applyReadDeadline()
}

// applyReadDeadline sets the deadline of the connection. The caller holds the lock.
func (c *Conn) applyReadDeadline() error {
	if c.wanted.Equal(c.set) {
		return nil
	}
	c.set = c.wanted
	return c.Conn.SetReadDeadline(c.set) //nolint:wrapcheck // passed through
}

// Read implements io.Reader. net/http watches a connection with reads of one byte; nothing else reads so little.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 1 && c.selfWatched {
		return 0, nil // this ends the watch of net/http
	}
	if err := c.beginRead(); err != nil {
		return 0, err
	}
	defer c.endRead()
	return c.read(p)
}

// beginRead sets the deadline of the read that follows.
func (c *Conn) beginRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = true
	return c.applyReadDeadline()
}

func (c *Conn) endRead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
}
