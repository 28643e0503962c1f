package httpapi

import (
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/dataplane/internal/auth"
	"modelgateway/shared/apierr"
	"modelgateway/shared/ident"
)

// exchange is one request and its answer: the ResponseWriter of the handlers, and everything that the access log and
// the metrics report about them.
type exchange struct {
	http.ResponseWriter
	id       string
	idHeader [1]string // id as a header value, shared by two headers
	uuid     ident.UUID
	started  time.Time
	method   string
	endpoint string
	messages bool // whether errors use the envelope of the messages format

	key    *auth.Key
	model  string
	stream bool
	// provider and route are those of the last attempt. upstream is the time spent waiting for providers.
	provider, route string
	upstream        time.Duration
	firstByte       time.Duration
	status          int
	code            apierr.Code
	wrote           bool
	end             string // why a stream ended; empty for non-streaming answers
	failure         error
}

func newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	u := ident.New()
	id := ident.Request.Format(u)
	return &exchange{ResponseWriter: w, id: id, idHeader: [1]string{id}, uuid: u, started: time.Now(), method: r.Method}
}

func exchangeOf(c echo.Context) *exchange { return c.Response().Writer.(*exchange) }

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if !x.wrote {
		x.wrote, x.status = true, status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (x *exchange) Write(p []byte) (int, error) {
	if !x.wrote {
		x.wrote, x.status = true, http.StatusOK
	}
	return x.ResponseWriter.Write(p) //nolint:gosec // G705: JSON and events, never HTML
}

var contentJSON = []string{"application/json"}

// writeJSON writes a complete answer. Because its length is known, the server sends headers and body with one write.
func (x *exchange) writeJSON(status int, body []byte) {
	h := x.Header()
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.WriteHeader(status)
	if x.method != http.MethodHead {
		_, _ = x.Write(body) // the client may have gone; the answer is recorded either way
	}
}

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
	truncated := v != nil && x.wrote
	if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // the value that panics with this meaning
		s.Log.Error("request handler panicked", slog.Any("panic", v), slog.String("request_id", x.id), slog.String("stack", string(debug.Stack())))
		if !x.wrote {
			x.writeError(publicError(nil))
		}
	}
	s.record(x)
	if truncated {
		panic(http.ErrAbortHandler)
	}
}

// record writes the access log line of a request and its metrics.
func (s *Server) record(x *exchange) {
	now := time.Now()
	took := now.Sub(x.started)
	s.Metrics.recordRequest(x, took)
	level := slog.LevelInfo
	var room [16]slog.Attr
	attrs := append(room[:0],
		slog.String("request_id", x.id), slog.String("method", x.method), slog.String("endpoint", x.endpoint), slog.Int("status", x.status),
		slog.Int64("duration_us", took.Microseconds()))
	if x.key != nil {
		attrs = append(attrs, slog.String("account_id", x.key.AccountID), slog.String("key_id", x.key.KeyID))
	}
	if x.model != "" {
		attrs = append(attrs, slog.String("model", x.model), slog.Bool("stream", x.stream))
	}
	if x.provider != "" {
		attrs = append(attrs, slog.String("provider", x.provider), slog.String("route", x.route),
			slog.Int64("upstream_us", x.upstream.Microseconds()), slog.Int64("first_byte_us", x.firstByte.Microseconds()))
	}
	if x.code != "" {
		attrs = append(attrs, slog.String("code", string(x.code)))
	}
	if x.end != "" {
		attrs = append(attrs, slog.String("end", x.end))
	}
	if x.failure != nil {
		attrs = append(attrs, slog.String("error", x.failure.Error()))
		if x.status >= http.StatusInternalServerError {
			level = slog.LevelWarn
		}
	}
	s.Access.Line(level, now, "request", attrs)
}
