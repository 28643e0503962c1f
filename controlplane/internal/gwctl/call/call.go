// Package call owns the calls of the operator's tool to the admin API: the
// token on every request, the repetition of what a repetition cures, always
// under the same Idempotency-Key, and the errors that the rest tells apart.
package call

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	random "math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// IdempotencyHeader makes a POST safe to repeat.
const IdempotencyHeader = "Idempotency-Key"

const (
	// attempts is how often a request is sent at most.
	attempts = 5
	// firstPause is the default of Client.FirstPause.
	firstPause = 200 * time.Millisecond
	// longestPause bounds a pause, also one that the server asks for.
	longestPause = 10 * time.Second
	// maxProblem bounds what is read of an error's body.
	maxProblem = 1 << 20
)

// Client calls one server.
type Client struct {
	// Server is the address without /admin/v1.
	Server string
	// TokenFunc returns the bearer token. It is asked once per call.
	TokenFunc func(context.Context) (string, error)
	// HTTP sends the requests.
	HTTP *http.Client
	// Agent names the program to the server.
	Agent string
	// Timeout bounds a call up to the beginning of its answer, repetitions included; zero means for ever.
	Timeout time.Duration
	// FirstPause is how long the first repetition waits, doubled from attempt to attempt; zero means 200 ms.
	FirstPause time.Duration
	// NoteFunc is told what happens on the way, for people; nil tells nobody.
	NoteFunc func(format string, args ...any)
}

// Request is one call.
type Request struct {
	Method string
	// Path is escaped already.
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte
}

// Do sends a request until it is answered with something that sending it again
// would not change. A status of 300 and above is a ProblemError. The answer's body is the caller's to close.
func (c *Client) Do(ctx context.Context, r Request) (*http.Response, error) {
	token, err := c.TokenFunc(ctx)
	if err != nil {
		return nil, err
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if r.Method == http.MethodPost && r.Header.Get(IdempotencyHeader) == "" {
		r.Header.Set(IdempotencyHeader, NewKey())
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("User-Agent", c.Agent)
	ctx, cancel := context.WithCancelCause(ctx)
	late := func() { cancel(errTimeout) }
	var limit *time.Timer
	if c.Timeout > 0 {
		limit = time.AfterFunc(c.Timeout, late)
	}
	answer, err := c.repeat(ctx, r)
	if limit != nil && !limit.Stop() && err == nil { // the time was over just as the answer began
		_ = answer.Body.Close()
		err = &UnreachableError{Server: c.Server, Key: key(r), Err: errTimeout}
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answer.Body = &closer{answer.Body, func() { cancel(nil) }}
	return answer, nil
}

// closer ends the request's context with the body.
type closer struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (c *closer) Close() error {
	defer c.done()
	return c.ReadCloser.Close() //nolint:wrapcheck // the body is passed on as it is
}

var errTimeout = errors.New("the time for the call is over")

// repeat sends a request until it is answered for good.
func (c *Client) repeat(ctx context.Context, r Request) (*http.Response, error) {
	pause := cmp.Or(c.FirstPause, firstPause)
	for attempt := 1; ; attempt++ {
		answer, err := c.send(ctx, r)
		if err == nil {
			return answer, nil
		}
		wait, again := c.cured(ctx, err, pause)
		if !again || attempt == attempts {
			return nil, err
		}
		c.note("%v; again in %v", err, wait)
		select {
		case <-ctx.Done():
			return nil, c.unreachable(ctx, r, err)
		case <-time.After(wait):
		}
		pause = min(2*pause, longestPause)
	}
}

// cured tells whether sending again may help, and when.
func (c *Client) cured(ctx context.Context, err error, pause time.Duration) (time.Duration, bool) {
	if ctx.Err() != nil {
		return 0, false
	}
	// Clients that were turned away together do not come back together.
	wait := pause/2 + random.N(pause)
	if problem, ok := errors.AsType[*ProblemError](err); ok {
		if problem.Status != http.StatusBadGateway && problem.Status != http.StatusServiceUnavailable {
			return 0, false
		}
		return max(wait, min(problem.RetryAfter, longestPause)), true
	}
	_, ok := errors.AsType[*UnreachableError](err)
	return wait, ok
}

// send sends a request once.
func (c *Client) send(ctx context.Context, r Request) (*http.Response, error) {
	address := strings.TrimRight(c.Server, "/") + r.Path
	if len(r.Query) > 0 {
		address += "?" + r.Query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, address, bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	request.Header = r.Header.Clone()
	answer, err := c.HTTP.Do(request)
	if err != nil {
		return nil, c.unreachable(ctx, r, err)
	}
	c.note("%s %s: %s%s", r.Method, address, answer.Status, traits(answer.Header))
	if answer.StatusCode < http.StatusMultipleChoices {
		return answer, nil
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	if err != nil {
		return nil, c.unreachable(ctx, r, err)
	}
	return nil, newProblem(answer, text)
}

// traits are the headers that an operator may want to see.
func traits(h http.Header) string {
	var b strings.Builder
	for _, name := range []string{"ETag", "X-Request-Id", "Idempotent-Replayed"} {
		if value := h.Get(name); value != "" {
			b.WriteString(", " + name + " " + value)
		}
	}
	return b.String()
}

func (c *Client) unreachable(ctx context.Context, r Request, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return &UnreachableError{Server: c.Server, Key: key(r), Err: err}
}

func (c *Client) note(format string, args ...any) {
	if c.NoteFunc != nil {
		c.NoteFunc(format, args...)
	}
}

// key is the Idempotency-Key of a request.
func key(r Request) string { return r.Header.Get(IdempotencyHeader) }

// NewKey makes an Idempotency-Key.
func NewKey() string { return "gwctl-" + rand.Text() }

// retryAfter reads the header, zero if it says nothing.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
