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

// conn is a connection to a provider. One call uses it at a time.
type conn struct {
	net.Conn
	pool *pool
	in   *bufio.Reader // of Read
	// peek looks for bytes without taking them; nil where that is not possible.
	hasInput func() (there bool)
	// reused: calls went before. heard counts the bytes of the current call's answer, as the connection reads them;
	// room is how many more there may be.
	reused              bool
	received, readLimit int64
	idleSince           time.Time // idle
	// users are those of the call that are not done: who reads the answer and, of a large prompt, who writes it. The
	// last of them puts the connection back, unless one of them has found it unfit.
	users       atomic.Int32
	notReusable atomic.Bool
}

// readSize is what is read of a connection at once.
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

// peeker returns what tells whether a socket has bytes, or its end, to read.
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

// quiet tells whether an idle connection is alive: on one that is not, there is
// its end to read, or an answer that nobody has asked for.
func (c *conn) alive() bool {
	return c.in.Buffered() == 0 && (c.hasInput == nil || !c.hasInput())
}

var errHeadTooLarge = errors.New("upstream: the head of the answer is too large")

// Read reads from the network, for in.
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
	// maxHead bounds the head of an answer, maxInterim the answers before the real one that may come.
	maxHeadBytes = 1 << 20
	maxInterim   = 5
)

var errTooManyInterim = errors.New("upstream: no answer after many interim ones")

// receive reads the head of the answer.
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
			break // nobody has asked for that
		}
	}
	return nil, errTooManyInterim
}

// requests are what an answer is read for: whether there is a body depends on
// the method.
var responseRequests = map[string]*http.Request{http.MethodHead: {Method: http.MethodHead}}

// outs are the buffers of calls on their way out.
var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxSingleWrite); return &b }}

// transmit writes a call. A usual one leaves in one write, as each is a system
// call and wakes up the other side. A large one is written while its answer is
// waited for: a provider may answer before it has read all, and read no further.
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

// stream writes a large call. It ends with the connection, at the latest.
func (c *conn) writeLargeCall(head *[]byte, body *provider.Body) {
	parts := net.Buffers{*head, body.Bytes()}
	_, err := parts.WriteTo(c.Conn)
	*head = (*head)[:0]
	writeBuffers.Put(head)
	body.Release()
	c.release(err == nil)
}

// lateWrite is how long a provider that has answered may take to read on.
const lateWriteTimeout = time.Second

// leave is called by each user when it is done.
func (c *conn) release(fit bool) {
	if !fit {
		c.notReusable.Store(true)
	}
	switch {
	case c.users.Add(-1) > 0:
	case c.notReusable.Load():
		_ = c.Close() // at the latest
	default:
		c.pool.put(c)
	}
}
