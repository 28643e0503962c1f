package upstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// conn is a connection to a provider. One call at a time uses it.
type conn struct {
	// Conn is the TLS connection, or without TLS the same as plain.
	net.Conn
	plain net.Conn
	// records is the connection below TLS, nil without TLS.
	records *recordConn
	pool    *pool
	in      *bufio.Reader
	// hasInput reports whether bytes that nobody has read, or the end, have come on the plain connection. It is nil if
	// the connection cannot say that. Only the reader of the connection calls it.
	hasInput func() bool
	// reused reports whether the connection has served calls before. received counts the bytes of the current answer;
	// readLimit is how many more are accepted.
	reused              bool
	received, readLimit int64
	idleSince           time.Time
	// sent counts the bytes that were written to the network without TLS; with TLS, records counts them.
	sent uint64
	// large reports whether a further goroutine writes the current call. ackedAtAnswer is the number of bytes that the
	// provider had acknowledged when the answer to a large call began.
	large         bool
	ackedAtAnswer uint64
	// users counts the goroutines that use the connection for the current call: one reads the answer and, for a large
	// prompt, another writes the call. The last one puts the connection back into the pool unless one of them has set
	// notReusable.
	users       atomic.Int32
	notReusable atomic.Bool
}

// readSize is the size of the read buffer, in bytes.
const readSize = 16 << 10

// newConn makes a conn of a plain connection; tlsConfig is nil for one without TLS.
func newConn(plain net.Conn, p *pool, tlsConfig *tls.Config) *conn {
	c := &conn{
		Conn:     plain,
		plain:    plain,
		pool:     p,
		hasInput: inputProbe(plain),
	}
	if tlsConfig != nil {
		c.records = &recordConn{Conn: plain}
		c.Conn = tls.Client(c.records, tlsConfig)
	}
	c.in = bufio.NewReaderSize(c, readSize)
	return c
}

// canServe reports whether an idle connection can serve a call: the provider has not closed it, and there are no bytes
// that belong to no call, because they would be taken for the answer. It must be asked before each reuse.
func (c *conn) canServe() bool {
	return c.in.Buffered() == 0 && (c.records == nil || c.records.isDrained(c.Conn)) && c.hasInput != nil && !c.hasInput()
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

// maxHeadBytes bounds the head of an answer together with the interim answers (1xx) before it, in bytes.
const maxHeadBytes = 1 << 20

var errSwitchedProtocols = errors.New("upstream: the provider has switched the protocol")

// readHead reads the head of the answer.
func (c *conn) readHead(method string) (*http.Response, error) {
	c.readLimit = maxHeadBytes
	if _, err := c.in.Peek(1); err != nil {
		return nil, err //nolint:wrapcheck // passed through
	}
	if c.large {
		c.noteAnswerBegins()
	}

	for {
		response, err := http.ReadResponse(c.in, responseRequests[method])
		if err != nil {
			return nil, err //nolint:wrapcheck // passed through
		}
		if response.StatusCode/100 != 1 {
			c.readLimit = math.MaxInt64
			return response, nil
		}
		if response.StatusCode == http.StatusSwitchingProtocols {
			return nil, errSwitchedProtocols // the gateway never requests an upgrade
		}
	}
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
	c.large = false
	if call.Body == nil || len(out)+call.Body.Len() <= maxSingleWrite {
		if call.Body != nil {
			out = call.Body.AppendTo(out)
		}
		n, err := c.Write(out)
		c.sent += uint64(n)
		*b = out[:0]
		writeBuffers.Put(b)
		return err
	}

	*b = out
	c.users.Store(2)
	c.large = true
	call.Body.Retain()
	go c.writeLargeCall(b, call.Body)

	return nil
}

// writeLargeCall writes a call in parts, until the connection is closed.
func (c *conn) writeLargeCall(head *[]byte, body *provider.Body) {
	parts := net.Buffers(body.AppendParts([][]byte{*head}))
	n, err := parts.WriteTo(c.Conn)
	c.sent += uint64(n)
	*head = (*head)[:0]
	writeBuffers.Put(head)
	body.Release()
	c.release(err == nil)
}

// noteAnswerBegins records how much of a large call the provider has when its answer begins.
func (c *conn) noteAnswerBegins() {
	var known bool
	if c.ackedAtAnswer, known = acknowledged(c.plain); !known {
		c.ackedAtAnswer = math.MaxUint64
		if c.users.Load() > 1 {
			c.notReusable.Store(true)
		}
	}
}

// answeredEarly reports whether the provider began its answer before it had the whole call. It may then take the rest
// for another call, so the connection cannot be reused.
func (c *conn) answeredEarly() bool {
	sent := c.sent
	if c.records != nil {
		sent = c.records.sent
	}
	return c.large && c.ackedAtAnswer < sent
}

// lateWriteTimeout is how long a provider that has answered may take to read the rest of the call.
const lateWriteTimeout = time.Second

// release ends one use of the connection. The last one closes it or puts it back into the pool.
func (c *conn) release(reusable bool) {
	if !reusable {
		c.notReusable.Store(true)
	}
	switch {
	case c.users.Add(-1) > 0:
	case c.notReusable.Load() || c.answeredEarly():
		_ = c.Close()
	default:
		c.pool.put(c)
	}
}
