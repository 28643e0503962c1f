package console

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
)

// transport is an http.RoundTripper that calls a handler. The body of the response is a stream, so
// an export takes no memory.
type transport struct {
	handler http.Handler
	log     *slog.Logger
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	in.Header.Del("Authorization") // the context has the identity
	in.RequestURI = in.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}

	body, into := io.Pipe()
	w := &responseWriter{
		header:  http.Header{},
		trailer: http.Header{},
		body:    into,
		started: make(chan struct{}),
	}

	go func() {
		defer func() {
			// The admin API panics to abort a response; the reader must not take it for whole.
			status := http.StatusOK
			if failure := recover(); failure != nil {
				if failure != http.ErrAbortHandler { //nolint:errorlint // the value of a panic, as in net/http
					t.log.ErrorContext(
						ctx,
						"operation of the admin API panicked",
						"path",
						in.URL.Path,
						"panic",
						failure,
						"stack",
						string(debug.Stack()),
					)
				}
				status = http.StatusInternalServerError
				_ = into.CloseWithError(io.ErrUnexpectedEOF)
			}
			w.WriteHeader(status)
			w.end()
		}()
		t.handler.ServeHTTP(w, in)
	}()

	select {
	case <-w.started:
	case <-ctx.Done():
		_ = body.CloseWithError(ctx.Err())
		cancel()
		return nil, ctx.Err()
	}

	return &http.Response{
		Status:        http.StatusText(w.status),
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.sent,
		Body:          &responseBody{body, cancel},
		Trailer:       w.trailer,
		ContentLength: -1,
		Request:       r,
	}, nil
}

// responseBody ends the handler's context when it is closed.
type responseBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *responseBody) Close() error {
	b.cancel()
	return b.PipeReader.Close() //nolint:wrapcheck // never fails
}

type responseWriter struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	// started is closed when status and sent are set.
	started chan struct{}
	status  int
	sent    http.Header
	// trailer is complete when the body has ended.
	trailer http.Header
}

// end ends the body, after the trailers that the handler has announced.
func (w *responseWriter) end() {
	for name := range strings.SplitSeq(w.sent.Get("Trailer"), ",") {
		if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); w.header[name] != nil {
			w.trailer[name] = w.header[name]
		}
	}
	_ = w.body.Close()
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.started)
	})
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

func (w *responseWriter) Flush() { w.WriteHeader(http.StatusOK) }
