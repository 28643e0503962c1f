package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// answerBody performs one call on a connection and is then the body of its answer, read under the time limits of the
// call.
type answerBody struct {
	ctx  context.Context
	conn *conn
	body io.Reader
	// deadline is when the next bytes must have come, totalDeadline when all must have come. idleTimeout is how long
	// the provider may send nothing between two bytes. Only time in Read and Await counts, so that a slow client is not
	// taken for a silent provider.
	deadline, totalDeadline time.Time
	idleTimeout             time.Duration
	// extended is when the idle timeout was last started.
	extended      time.Time
	started, done bool
	// deadlineSet reports whether Await has set the deadline of the next read.
	deadlineSet bool
	// closeAfter reports whether the connection cannot be used for another call.
	closeAfter bool
	// stopCancel prevents the end of the context from closing the connection. It returns false if the closing has
	// begun.
	stopCancel func() bool
	// text reads this body if it is a text.
	text textBody
}

// exchange sends the call and reads the head of its answer.
func (a *answerBody) exchange(c *conn, call *provider.Call) (*provider.Answer, error) {
	a.conn, a.stopCancel, a.done = c, nil, false
	if a.ctx.Done() != nil {
		a.stopCancel = context.AfterFunc(a.ctx, func() { _ = c.Close() })
	}

	writeErr := c.writeCall(c.pool.heads.get(call), call)
	// The answer is read even after a failed write: the provider may have answered and stopped reading.
	response, err := c.readHead(methodOf(call)) //nolint:bodyclose // finish releases the connection instead
	if err != nil {
		a.finish(false)
		if writeErr != nil {
			err = writeErr
		}
		return nil, err
	}

	a.body, a.closeAfter = response.Body, response.Close || writeErr != nil
	if response.Body == http.NoBody {
		a.body = nil
		a.finish(true)
	}

	return &provider.Answer{
		Status: response.StatusCode,
		Header: response.Header,
		Body:   a,
		Length: response.ContentLength,
	}, nil
}

// Read reads the body. If the context or a time limit has ended the call, that is the error.
func (a *answerBody) Read(p []byte) (int, error) {
	if a.done {
		return 0, io.EOF
	}
	if !a.deadlineSet {
		a.setReadDeadline()
	}

	a.deadlineSet = false
	n, err := a.body.Read(p)
	a.started = a.started || n > 0
	switch {
	case errors.Is(err, io.EOF):
		a.finish(true)
	case err != nil:
		err = a.cause(err)
		a.finish(false)
	}

	return n, err
}

func (a *answerBody) Await() error {
	if a.done || a.conn.in.Buffered() > 0 {
		return nil
	}
	a.setReadDeadline()
	a.deadlineSet = true
	if _, err := a.conn.in.Peek(1); err != nil && !errors.Is(err, io.EOF) { // Read handles the end
		err = a.cause(err)
		a.finish(false)
		return err
	}
	return nil
}

// setReadDeadline starts the idle timeout for the next bytes, unless it was started a moment before: many events come shortly
// after one another, and moving the deadline for each costs more than parsing it.
func (a *answerBody) setReadDeadline() {
	if !a.started {
		return // the deadline for the first byte still applies
	}
	now := time.Now()
	if now.Sub(a.extended) < a.idleTimeout/idleSteps {
		return
	}
	a.extended = now
	if a.deadline = now.Add(a.idleTimeout); a.deadline.After(a.totalDeadline) {
		a.deadline = a.totalDeadline
	}
	_ = a.conn.SetReadDeadline(a.deadline) // the next read reports that a connection is closed
}

// idleSteps is the number of times that the deadline is moved within an idle timeout, which may so be shorter by one part
// of them.
const idleSteps = 16

// Close ends the call. If the answer has not been read to its end, the connection is closed.
func (a *answerBody) Close() error {
	a.finish(false)
	return nil
}

// finish releases the connection. complete reports whether the answer was read to its end.
func (a *answerBody) finish(complete bool) {
	if a.done {
		return
	}
	a.done = true
	canceled := a.stopCancel != nil && !a.stopCancel()
	reusable := complete && !canceled && !a.closeAfter && !a.conn.notReusable.Load() && a.conn.in.Buffered() == 0
	if !reusable {
		_ = a.conn.Close() // this also ends a write that is still running
	} else if a.conn.users.Load() > 1 {
		// A missed deadline ends the write and makes the connection not reusable.
		_ = a.conn.SetWriteDeadline(time.Now().Add(lateWriteTimeout))
	}
	a.conn.release(reusable)
}

// cause returns the reason for which a call failed with err.
func (a *answerBody) cause(err error) error {
	if cause := context.Cause(a.ctx); cause != nil {
		return cause
	}
	switch {
	case !timedOut(err):
		return err
	case !time.Now().Before(a.totalDeadline):
		return provider.ErrTotalTimeout
	case a.started:
		return provider.ErrIdleTimeout
	case !time.Now().Before(a.deadline):
		return provider.ErrFirstByteTimeout
	}
	return err // the time limit for connecting
}
