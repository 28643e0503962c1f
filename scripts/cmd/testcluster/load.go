package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// figures count the requests of a load.
type figures struct {
	requests, streams int            // answered with 200 and complete
	announced         int            // answers after which the server closed the connection as it had said in Connection: close
	idle              int            // connections that the server closed while no request was running
	refused           map[string]int // answers with other statuses, by status and code
	broken            map[string]int // connections that failed during a request, by error
	slowest           time.Duration  // of a JSON request
	first, last       time.Time      // failures
}

// since returns the figures less those of an earlier time; slowest, first and last are those of now.
func (f figures) since(before figures) figures {
	f.requests, f.streams = f.requests-before.requests, f.streams-before.streams
	f.announced, f.idle = f.announced-before.announced, f.idle-before.idle
	f.refused, f.broken = less(f.refused, before.refused), less(f.broken, before.broken)
	return f
}

func less(now, before map[string]int) map[string]int {
	rest := map[string]int{}
	for k, n := range now {
		if n -= before[k]; n > 0 {
			rest[k] = n
		}
	}
	return rest
}

// failures is the number of requests without a complete answer. Refusals with 503 do not count if something is unavailable.
func (f figures) failures(refuses bool) int {
	n := 0
	for reason, count := range f.refused {
		if !refuses || !strings.HasPrefix(reason, "status 503 ") {
			n += count
		}
	}
	for _, count := range f.broken {
		n += count
	}
	return n
}

// String returns the figures as a line.
func (f figures) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%6d requests %4d streams %3d failures %4d announced closes %2d idle closes, slowest %s",
		f.requests, f.streams, f.failures(false), f.announced, f.idle, f.slowest.Round(time.Millisecond))
	for _, counts := range []map[string]int{f.refused, f.broken} {
		for _, reason := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&text, "\n    %s: %d", reason, counts[reason])
		}
	}
	if f.failures(false) > 0 {
		fmt.Fprintf(&text, "\n    between %s and %s", f.first.UTC().Format(time.TimeOnly), f.last.UTC().Format(time.TimeOnly))
	}
	return text.String()
}

// load sends requests until it is stopped. Its clients keep their connections and notice when one was closed while it was idle,
// as the clients of SDKs do, but they never repeat a request. The answer of a stream begins before a drain that starts during
// it, so its connection can only be closed without an announcement.
type load struct {
	address, key string
	cancel       context.CancelFunc
	running      sync.WaitGroup

	mu  sync.Mutex
	now figures
}

// newLoad returns a load for the address of the public API that has not been started.
func newLoad(address, key string) *load {
	return &load{address: address, key: key, now: figures{refused: map[string]int{}, broken: map[string]int{}}}
}

// start starts the clients.
func (l *load) start(ctx context.Context, o options) {
	ctx, l.cancel = context.WithCancel(ctx)
	for range o.clients {
		l.running.Go(func() { l.client(ctx, "chat", o.pause) })
	}
	for range o.streams {
		l.running.Go(func() { l.client(ctx, "stream", o.pause) })
	}
}

// stop waits until running requests are answered.
func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}

// snapshot returns the figures, and begins a new measurement of the slowest request and of the times of failures.
func (l *load) snapshot() figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.copy()
	l.now.slowest, l.now.first, l.now.last = 0, time.Time{}, time.Time{}
	return f
}

// count returns the figures.
func (l *load) count() figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.copy()
}

// copy returns the figures; the caller holds mu.
func (l *load) copy() figures {
	f := l.now
	f.refused, f.broken = maps.Clone(f.refused), maps.Clone(f.broken)
	return f
}

// client sends one request after the other.
func (l *load) client(ctx context.Context, model string, pause time.Duration) {
	c := connection{address: l.address}
	defer c.close()
	for ctx.Err() == nil {
		l.send(context.WithoutCancel(ctx), &c, model) // a running request is answered
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// send sends a request and counts its answer.
func (l *load) send(ctx context.Context, c *connection, model string) {
	began := time.Now()
	body := `{"model":"` + model + `","messages":[{"role":"user","content":"Hello"}]`
	if model == "stream" {
		body += `,"stream":true`
	}

	answer, err := c.exchange(ctx, l.key, body+"}")
	if err == nil && answer.status == http.StatusOK && model == "stream" &&
		!bytes.HasSuffix(bytes.TrimSpace(answer.body), []byte("[DONE]")) {
		err = errors.New("stream without an end")
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	switch {
	case err != nil:
		l.now.broken[reason(err)]++
	case answer.status != http.StatusOK:
		l.now.refused[answer.refusal()]++
	case model == "stream":
		l.now.streams++
	default:
		l.now.requests++
		l.now.slowest = max(l.now.slowest, time.Since(began))
	}

	if err == nil && answer.closes {
		l.now.announced++
	}

	l.now.idle += c.idle
	c.idle = 0

	if err != nil || answer.status != http.StatusOK {
		l.now.last = time.Now()
		if l.now.first.IsZero() {
			l.now.first = l.now.last
		}
	}
}

// reason is the text of an error without its addresses, which differ from one connection to the next.
func reason(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return text
}

// connection is a connection that is opened when it is needed.
type connection struct {
	address string
	conn    net.Conn
	reader  *bufio.Reader
	idle    int // times that the server closed it while no request was running
}

// answer is a complete answer.
type answer struct {
	status int
	id     string // of the request
	body   []byte
	closes bool // the server announced that it closes the connection
}

// refusal is the status and the error code of an answer.
func (a answer) refusal() string {
	var envelope struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(a.body, &envelope) // other answers have a status only
	return fmt.Sprintf("status %d %s %s", a.status, envelope.Error.Code, envelope.Error.Message)
}

const requestLimit = time.Minute

// dropClosed closes the connection if the server has closed it since the last answer.
func (c *connection) dropClosed() {
	if c.conn == nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(time.Millisecond)) // an error shows in the next line
	if _, err := c.reader.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.close()
		c.idle++
	}
}

// exchange sends a request over the connection and reads the answer. After an error, or an announced close, the next request
// gets a new connection.
func (c *connection) exchange(ctx context.Context, key, body string) (a answer, err error) {
	defer func() {
		if err != nil || a.closes {
			c.close()
		}
	}()

	c.dropClosed()
	if c.conn == nil {
		dialer := net.Dialer{Timeout: requestLimit}
		if c.conn, err = dialer.DialContext(ctx, "tcp", c.address); err != nil {
			return a, fmt.Errorf("connect: %w", err)
		}
		c.reader = bufio.NewReader(c.conn)
	}

	if err := c.conn.SetDeadline(time.Now().Add(requestLimit)); err != nil {
		return a, fmt.Errorf("deadline: %w", err)
	}

	_, err = fmt.Fprintf(c.conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
	if err != nil {
		return a, fmt.Errorf("send: %w", err)
	}

	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return a, fmt.Errorf("read: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	a = answer{status: response.StatusCode, id: response.Header.Get("X-Request-Id"), closes: response.Close}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return a, fmt.Errorf("read the body: %w", err)
	}

	return a, nil
}

func (c *connection) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
