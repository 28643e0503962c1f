package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/httpapi/calls"
	"modelgateway/dataplane/internal/httpapi/clientconn"
	"modelgateway/dataplane/internal/httpapi/finished"
	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/dataplane/internal/httpapi/tracing"
	"modelgateway/dataplane/internal/turns"
	"modelgateway/shared/apierr"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

// exchange is one request and its answer: the ResponseWriter of the handlers, and everything that the access log and
// the metrics report about them.
type exchange struct {
	http.ResponseWriter
	server  *Server
	request *http.Request
	conn    *clientconn.Conn
	client  clientconn.Watch
	id      string
	// idHeader is id as a header value, shared by two headers; lengthHeader is that of Content-Length.
	idHeader, lengthHeader [1]string
	uuid                   ident.UUID
	started                time.Time
	method                 string
	endpoint               string
	messages               bool // whether errors use the envelope of the messages format

	key *auth.Key
	// turn runs while a body that is not small is read and checked.
	turn   turns.Turn
	model  string
	stream bool
	// provider, route and credential are those of the last attempt. upstream is the time spent waiting for providers.
	provider, route string
	credential      string // its name in the catalog
	// attempts counts the calls of providers.
	attempts int
	// noted are the routes that were skipped or that failed; nil in nearly all requests. calling is the id of the
	// credential of the call that is running.
	noted   calls.List
	calling string
	// usage is the usage event, nil until the outcome is recorded.
	usage     *event.Usage
	trace     *tracing.Request // nil if the request is not traced
	upstream  time.Duration
	firstByte time.Duration
	status    int
	code      apierr.Code
	wrote     bool
	// unread reports whether the request has a body that was not read to its end; reading, whether its reading began;
	// discard, whether the rest is discarded after the answer.
	unread, reading, discard bool
	end                      string // why a stream ended; empty for non-streaming answers
	truncated                bool   // whether the connection is closed before the answer is complete
	failure                  error
}

func newExchange(s *Server, w http.ResponseWriter, r *http.Request) *exchange {
	u := ident.New()
	id := ident.Request.Format(u)
	return &exchange{
		ResponseWriter: w,
		server:         s,
		request:        r,
		conn:           clientconn.Of(r.Context()),
		client:         clientconn.Watch{Context: r.Context()},
		id:             id,
		idHeader:       [1]string{id},
		uuid:           u,
		started:        time.Now(),
		method:         r.Method,
		unread:         r.ContentLength != 0,
	}
}

// ClientAddress implements auth.Use.
func (x *exchange) ClientAddress() netip.Addr { return x.server.cfg.Client(x.request) }

// ModelID implements auth.Use.
func (x *exchange) ModelID() string { return x.model }

func exchangeOf(c echo.Context) *exchange { return c.Response().Writer.(*exchange) }

// beginAttempt notes that a route is called.
func (x *exchange) beginAttempt(route, credential string) {
	x.attempts++
	x.calling = credential
	x.noted.Begin(route)
}

// attemptsNoted returns the attempts of the usage event: nil if the first route serves the request. class is that of the failure
// of the call that continues, for a stream that breaks off; otherwise empty.
func (x *exchange) attemptsNoted(class string) []event.Attempt {
	if x.calling == "" || x.noted == nil && class == "" {
		return x.noted
	}
	return x.noted.With(event.Attempt{
		Route:          x.route,
		Provider:       x.provider,
		Credential:     x.calling,
		CredentialName: x.credential,
		Class:          class,
		MS:             x.firstByte.Milliseconds(),
	})
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(status int) {
	if !x.wrote {
		x.wrote, x.status = true, status
		x.keepOrClose()
	}
	x.ResponseWriter.WriteHeader(status)
}

// maxDrained is the size in bytes up to which net/http reads the rest of a body before it sends the answer. The
// connection then serves further requests.
const maxDrained = 64 << 10

// keepOrClose decides whether the connection serves further requests. During a drain it does not. If much may be left of
// a request body, the answer is sent first, the rest is discarded, and the connection is closed.
func (x *exchange) keepOrClose() {
	if x.server.draining.Load() {
		x.Header()["Connection"] = []string{"close"}
	}
	if length := x.request.ContentLength; !x.unread || (length >= 0 && length <= maxDrained) {
		return
	}
	x.Header()["Connection"] = []string{"close"}
	// A client that expects to be asked for its body has not sent any of it, unless the reading began.
	x.discard = x.reading || x.request.Header["Expect"] == nil
}

func (x *exchange) Write(p []byte) (int, error) {
	if !x.wrote {
		x.WriteHeader(http.StatusOK)
	}
	return x.ResponseWriter.Write(p)
}

var contentJSON = []string{"application/json"}

// writeJSON writes a complete answer, which may have parts. Because its length is known, the server sends headers and body with one write.
func (x *exchange) writeJSON(status int, parts ...[]byte) {
	h := x.Header()
	h["Content-Type"] = contentJSON
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	x.lengthHeader[0] = strconv.Itoa(length)
	h["Content-Length"] = x.lengthHeader[:]
	x.WriteHeader(status)
	if x.method == http.MethodHead {
		return
	}

	// Each piece may take the stall timeout, all together as long as the least rate allows.
	now := time.Now()
	end := now.Add(x.server.cfg.StallTimeout + time.Duration(length)*time.Second/time.Duration(x.server.cfg.MinRate))
	for piece := range clientconn.Pieces(parts) {
		x.conn.ExtendWrite(now)
		if _, err := x.Write(piece); err != nil {
			return // the client has gone; the answer is recorded either way
		}
		if length <= clientconn.PieceSize {
			continue
		}
		if now = time.Now(); now.After(end) {
			x.failure = errSlowClient
			return // net/http closes the connection, because the answer is shorter than declared
		}
	}
}

var errSlowClient = errors.New("httpapi: the client takes its answer too slowly")

// writeError writes an error in the envelope of the endpoint's format.
func (x *exchange) writeError(e *apierr.Error) {
	body := e.Envelope(x.id)
	if x.messages {
		body = e.MessagesEnvelope(x.id)
	}
	x.writeJSON(e.Status, body)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// finishExchange is deferred around every request. It recovers from panics and records the request. If the answer had
// begun before a panic, the connection is closed: a truncated answer must not look complete.
func (s *Server) finishExchange(x *exchange) {
	v := recover()
	x.truncated = v != nil && x.wrote
	if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // the value that panics with this meaning
		s.Log.Error(
			"request handler panicked",
			slog.Any("panic", v),
			slog.String("request_id", x.id),
			slog.String("stack", string(debug.Stack())),
		)
		if !x.wrote {
			x.writeError(publicError(nil))
		}
	}
	s.record(x)
	if x.truncated {
		panic(http.ErrAbortHandler)
	}
}

// outcome tells how a request ended. The status of an answer that has begun cannot tell it.
func (x *exchange) outcome() string {
	switch {
	case x.status == errClientGone.Status, x.end == endClientGone, errors.Is(x.failure, errSlowClient):
		return finished.ClientGone
	case x.truncated && x.request.Context().Err() != nil:
		return finished.ClientGone
	case x.end == endRevoked:
		return finished.Refused
	case errors.Is(x.failure, refused.ErrMaintenance):
		return finished.Maintenance
	case x.truncated, x.end != "" && x.end != endCompleted, x.status >= http.StatusInternalServerError:
		return finished.Failed
	case x.status >= http.StatusBadRequest:
		return finished.Refused
	default:
		return finished.Completed
	}
}

// record writes the access log line of a request, its metrics, and what operators see of it.
func (s *Server) record(x *exchange) {
	now := time.Now()
	q := finished.Request{
		ID:        x.id,
		TraceID:   x.trace.ID(),
		Method:    x.method,
		Endpoint:  x.endpoint,
		Model:     x.model,
		Stream:    x.stream,
		Provider:  x.provider,
		Route:     x.route,
		Attempts:  x.attempts,
		Usage:     x.usage,
		Status:    x.status,
		Code:      x.code,
		Outcome:   x.outcome(),
		End:       x.end,
		Err:       x.failure,
		At:        now,
		Took:      now.Sub(x.started),
		FirstByte: x.firstByte,
		Upstream:  x.upstream,
	}
	if x.key != nil {
		q.AccountID, q.ProjectID, q.KeyID = x.key.AccountID, x.key.ProjectID, x.key.KeyID
	}

	s.Metrics.RecordRequest(&q)
	if refusal, ok := q.Refusal(); ok {
		s.Refusals.Record(now, &refusal)
	}
	if open := s.Tails.Open(); open != nil {
		open.Offer(q.Line())
	}
	if x.trace != nil {
		x.trace.End(&q)
	}

	q.Log(s.Access)
}
