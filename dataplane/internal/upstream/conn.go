package upstream

import (
	"bufio"
	"errors"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// conn is a connection to a provider. One call at a time uses it.
type conn struct {
	net.Conn
	pool *pool
	in   *bufio.Reader
	// hasInput reports whether the socket has bytes to read, without reading them; nil where that is not possible.
	hasInput func() (there bool)
	// reused reports whether the connection has served calls before. received counts the bytes of the current answer;
	// readLimit is how many more are accepted.
	reused              bool
	received, readLimit int64
	idleSince           time.Time
	// users counts the goroutines that use the connection for the current call: one reads the answer and, for a large
	// prompt, another writes the call. The last one puts the connection back into the pool unless one of them has set
	// notReusable.
	users       atomic.Int32
	notReusable atomic.Bool
}

// readSize is the size of the read buffer, in bytes.
const readSize = 16 << 10

func newConn(plain net.Conn, p *pool) *conn {
	c := &conn{Conn: plain, pool: p}
	c.in = bufio.NewReaderSize(c, readSize)
	if s, ok := plain.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.hasInput = inputProbe(raw)
		}
	}
	return c
}

// inputProbe returns a function that reports whether a socket has bytes to read or has reached its end.
func inputProbe(raw syscall.RawConn) func() bool {
	there := false
	var one [1]byte
	look := func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		there = !errors.Is(err, syscall.EAGAIN)
		return true
	}
	return func() bool {
		return raw.Read(look) != nil || there
	}
}

// alive reports whether an idle connection can be used. A connection on which the kernel has something to read cannot:
// the provider has closed it, or has sent bytes that belong to no call.
func (c *conn) alive() bool {
	return c.in.Buffered() == 0 && (c.hasInput == nil || !c.hasInput())
}

var errHeadTooLarge = errors.New("upstream: the head of the answer is too large")

// Read reads from the network. It is the source of the buffered reader in.
func (c *conn) Read(p []byte) (int, error) {
	if c.readLimit <= 0 {
		return 0, errHeadTooLarge
	}
	n, err := c.Conn.Read(p)
	c.received += int64(n)
	c.readLimit -= int64(n)
	return n, err
}

const (
	// maxHeadBytes bounds the head of an answer, maxInterim the interim answers (1xx) before it.
	maxHeadBytes = 1 << 20
	maxInterim   = 5
)

var errTooManyInterim = errors.New("upstream: too many interim answers")

// readHead reads the head of the answer.
func (c *conn) readHead(method string) (*http.Response, error) {
	c.readLimit = maxHeadBytes
	for range maxInterim {
		response, err := http.ReadResponse(c.in, responseRequests[method])
		if err != nil {
			return nil, err //nolint:wrapcheck // passed through
		}
		if response.StatusCode >= http.StatusOK {
			c.readLimit = math.MaxInt64
			return response, nil
		}
		if response.StatusCode == http.StatusSwitchingProtocols {
			break // the gateway never requests an upgrade
		}
	}
	return nil, errTooManyInterim
}

// responseRequests are the requests that http.ReadResponse needs: whether an answer has a body depends on the method.
var responseRequests = map[string]*http.Request{http.MethodHead: {Method: http.MethodHead}}

// writeBuffers holds the buffers for outgoing calls.
var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxSingleWrite); return &b }}

// writeCall writes a call. Usually it needs one write, because each write is a system call and wakes up the provider. A
// large call is written in the background while the answer is awaited, because a provider may answer before it has read
// everything, and then stop reading.
func (c *conn) writeCall(head *head, call *provider.Call) error {
	b := writeBuffers.Get().(*[]byte)
	out := head.appendTo((*b)[:0], call, c.pool.base)
	c.users.Store(1)
	if call.Body == nil || len(out)+call.Body.Len() <= maxSingleWrite {
		if call.Body != nil {
			out = append(out, call.Body.Bytes()...)
		}
		_, err := c.Write(out)
		*b = out[:0]
		writeBuffers.Put(b)
		return err
	}
	*b = out
	c.users.Store(2)
	call.Body.Retain()
	go c.writeLargeCall(b, call.Body)
	return nil
}

// writeLargeCall writes a call in parts, until the connection is closed.
func (c *conn) writeLargeCall(head *[]byte, body *provider.Body) {
	parts := net.Buffers{*head, body.Bytes()}
	_, err := parts.WriteTo(c.Conn)
	*head = (*head)[:0]
	writeBuffers.Put(head)
	body.Release()
	c.release(err == nil)
}

// lateWriteTimeout is how long a provider that has answered may take to read the rest of the call.
const lateWriteTimeout = time.Second

// release ends one use of the connection.
func (c *conn) release(reusable bool) {
	if !reusable {
		c.notReusable.Store(true)
	}
	switch {
	case c.users.Add(-1) > 0:
	case c.notReusable.Load():
		_ = c.Close()
	default:
		c.pool.put(c)
	}
}
