package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// answerBody is one call on a connection, and then the body of its answer,
// read under the call's time limits.
type answerBody struct {
	ctx  context.Context
	conn *conn
	body io.Reader
	// until is when the first byte must be there, total when all must; idle is how long the provider may be silent
	// between two bytes. Only waiting counts: a slow client is not a silent provider.
	deadline, totalDeadline time.Time
	idleTimeout             time.Duration
	started, done           bool
	// awaited: the time limit of the next read has begun.
	deadlineSet bool
	// last tells that the connection is good for no call after this one.
	closeAfter bool
	// uncut ends the cutting of the connection at the end of the context; false: it is cut.
	stopCancel func() bool
}

// exchange sends the call and reads the head of its answer.
func (a *answerBody) exchange(c *conn, call *provider.Call) (*provider.Answer, error) {
	a.conn, a.stopCancel, a.done = c, nil, false
	if a.ctx.Done() != nil {
		a.stopCancel = context.AfterFunc(a.ctx, func() { _ = c.Close() })
	}
	unsent := c.writeCall(c.pool.heads.get(call), call)
	// Even then: the provider may have answered and read no further.
	response, err := c.readHead(methodOf(call)) //nolint:bodyclose // its end, or the connection's, is what counts
	if err != nil {
		a.finish(false)
		if unsent != nil {
			err = unsent
		}
		return nil, err
	}
	a.body, a.closeAfter = response.Body, response.Close || unsent != nil
	if response.Body == http.NoBody {
		a.body = nil
		a.finish(true)
	}
	return &provider.Answer{Status: response.StatusCode, Header: response.Header, Body: a, Length: response.ContentLength}, nil
}

// Read reads the body. The error of a call that was cut says by what.
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

// Await waits until there is something to read, or the end, as Read does. It
// needs no buffer: many streams wait at once.
func (a *answerBody) Await() error {
	if a.done || a.conn.in.Buffered() > 0 {
		return nil
	}
	a.setReadDeadline()
	a.deadlineSet = true
	if _, err := a.conn.in.Peek(1); err != nil && !errors.Is(err, io.EOF) { // what an end means, Read knows
		err = a.cause(err)
		a.finish(false)
		return err
	}
	return nil
}

// limit begins the time in which the next bytes must come.
func (a *answerBody) setReadDeadline() {
	if !a.started {
		return // that of the first byte runs
	}
	if a.deadline = time.Now().Add(a.idleTimeout); a.deadline.After(a.totalDeadline) {
		a.deadline = a.totalDeadline
	}
	_ = a.conn.SetReadDeadline(a.deadline) // of a connection that is closed: the read tells
}

// Close ends the call. An answer that was not read to its end is cut.
func (a *answerBody) Close() error {
	a.finish(false)
	return nil
}

// finish lets go of the connection; whole: the answer was read to its end.
func (a *answerBody) finish(whole bool) {
	if a.done {
		return
	}
	a.done = true
	cut := a.stopCancel != nil && !a.stopCancel()
	fit := whole && !cut && !a.closeAfter && a.conn.in.Buffered() == 0
	if !fit {
		_ = a.conn.Close() // who still writes must not wait
	} else if a.conn.users.Load() > 1 {
		_ = a.conn.SetWriteDeadline(time.Now().Add(lateWriteTimeout)) // a failure ends the writing as well
	}
	a.conn.release(fit)
}

// reason is why a call failed.
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
	return err // of connecting
}
