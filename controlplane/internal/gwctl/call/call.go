// Package call sends gwctl's requests to the admin API, with the token and with retries under one Idempotency-Key, and
// returns the errors that the exit codes depend on.
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
	// attempts is the maximum number of times that a request is sent.
	attempts = 5
	// firstPause is the default of Client.FirstPause.
	firstPause = 200 * time.Millisecond
	// maxPause bounds a pause, including one that the server asks for.
	maxPause = 10 * time.Second
	// maxProblem bounds how much of the body of an error is read, in bytes.
	maxProblem = 1 << 20
)

// Client sends requests to one server.
type Client struct {
	// Server is the address without /admin/v1.
	Server string
	// TokenFunc returns the bearer token. It is called once per call.
	TokenFunc func(context.Context) (string, error)
	// HTTP sends the requests.
	HTTP *http.Client
	// Agent is the User-Agent.
	Agent string
	// Timeout bounds the time until the response begins, retries included; zero means no limit.
	Timeout time.Duration
	// FirstPause is the pause before the first retry. It doubles with every attempt; zero means 200 ms.
	FirstPause time.Duration
	// NoteFunc gets a line for each attempt; nil discards them.
	NoteFunc func(format string, args ...any)
}

// Request is one call.
type Request struct {
	Method string
	// Path is escaped.
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte
}

// Do sends a request and retries it if it may succeed then. A status of 300 or more is a *ProblemError. The caller closes
// the body of the response.
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

	answer, err := c.retry(ctx, r)
	if limit != nil && !limit.Stop() && err == nil { // the timer fired just as the response began
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

// closer cancels the request's context when the body is closed.
type closer struct {
	io.ReadCloser
	done func()
}

func (c *closer) Close() error {
	defer c.done()
	return c.ReadCloser.Close() //nolint:wrapcheck // a wrapper does not change errors
}

var errTimeout = errors.New("the request timed out")

// retry sends a request until it succeeds or fails permanently.
func (c *Client) retry(ctx context.Context, r Request) (*http.Response, error) {
	pause := cmp.Or(c.FirstPause, firstPause)
	for attempt := 1; ; attempt++ {
		answer, err := c.send(ctx, r)
		if err == nil {
			return answer, nil
		}
		wait, again := c.retryPause(ctx, err, pause)
		if !again || attempt == attempts {
			return nil, err
		}
		c.note("%v; retry in %v", err, wait)
		select {
		case <-ctx.Done():
			return nil, c.unreachable(ctx, r, err)
		case <-time.After(wait):
		}
		pause = min(2*pause, maxPause)
	}
}

// retryPause reports whether a retry may succeed, and after which pause.
func (c *Client) retryPause(ctx context.Context, err error, pause time.Duration) (time.Duration, bool) {
	if ctx.Err() != nil {
		return 0, false
	}
	// Jitter: clients that were refused at the same time do not retry at the same time.
	wait := pause/2 + random.N(pause)
	if problem, ok := errors.AsType[*ProblemError](err); ok {
		if problem.Status != http.StatusBadGateway && problem.Status != http.StatusServiceUnavailable {
			return 0, false
		}
		return max(wait, min(problem.RetryAfter, maxPause)), true
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

// traits returns the headers for verbose output.
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
	if lost, ok := errors.AsType[*UnreachableError](err); ok {
		err = lost.Err
	}
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

// key returns the Idempotency-Key of a request.
func key(r Request) string { return r.Header.Get(IdempotencyHeader) }

// NewKey returns a random Idempotency-Key.
func NewKey() string { return "gwctl-" + rand.Text() }

// retryAfter returns the time in the header, zero without one.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
