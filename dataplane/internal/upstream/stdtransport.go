package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// stdTransport sends calls through the transport of net/http, which supports HTTP/2.
type stdTransport struct {
	base      *url.URL
	transport *http.Transport
	heads     headCache
}

func newStdTransport(
	base *url.URL,
	http2 bool,
	connect time.Duration,
	dial dialFunc,
	secured *tls.Config,
	proxy *url.URL,
) *stdTransport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, connect)
			defer cancel()
			return dial(ctx, network, address)
		},
		TLSHandshakeTimeout: connect,
		MaxIdleConns:        0, // no limit: there is only one host
		MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout:     idleConnTimeout,
		DisableCompression:  true,
		WriteBufferSize:     maxSingleWrite,
		ReadBufferSize:      8 << 10,
		ForceAttemptHTTP2:   http2,
		TLSClientConfig:     secured,
		Proxy:               http.ProxyURL(proxy),
	}
	if !http2 {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}

	return &stdTransport{base: base, transport: t}
}

func (l *stdTransport) address() *url.URL { return l.base }

func (l *stdTransport) close() { l.transport.CloseIdleConnections() }

func (l *stdTransport) send(ctx context.Context, call *provider.Call, limits Limits) (*provider.Answer, error) {
	ctx, watch := startCallTimer(ctx, limits)
	response, err := l.transport.RoundTrip(l.request(ctx, call))
	if err != nil {
		cause := context.Cause(ctx)
		watch.stop()
		if cause != nil {
			err = cause
		}
		return nil, err
	}

	if response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close()
		watch.stop()
		return nil, errSwitchedProtocols
	}

	body := &timedBody{NoAwait: provider.NoAwait{ReadCloser: response.Body}, ctx: ctx, timer: watch}
	return &provider.Answer{
		Status: response.StatusCode,
		Header: response.Header,
		Body:   body,
		Length: response.ContentLength,
	}, nil
}

func (l *stdTransport) request(ctx context.Context, call *provider.Call) *http.Request {
	target := targetOf(l.base, call)
	fields := l.heads.get(call).fields
	if call.Signature != nil {
		fields = maps.Clone(fields)
		maps.Copy(fields, call.Signature)
	}
	request := &http.Request{
		Method:     methodOf(call),
		URL:        &target,
		Host:       target.Host,
		Header:     fields,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
	}
	if call.Body != nil {
		ctx = httptrace.WithClientTrace(ctx, holdBody(call.Body))
		request.Body, request.ContentLength = call.Body.NewReader(), int64(call.Body.Len())
		if call.IdempotencyKey == "" { // without GetBody the transport does not repeat the call by itself
			request.GetBody = func() (io.ReadCloser, error) { return call.Body.NewReader(), nil }
		}
	}

	return request.WithContext(ctx)
}

// holdBody retains a body from the time when a connection may read it until the request is written. If a connection
// breaks without reporting that, the body is not released.
func holdBody(body *provider.Body) *httptrace.ClientTrace {
	var writing atomic.Int32
	return &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			writing.Add(1)
			body.Retain()
		},
		WroteRequest: func(httptrace.WroteRequestInfo) {
			if writing.Add(-1) >= 0 {
				body.Release()
			}
		},
	}
}

// callTimer cancels a call whose provider exceeds a time limit.
type callTimer struct {
	cancel      context.CancelCauseFunc
	idleTimeout time.Duration
	started     atomic.Bool
	// timer runs until the first byte, and from then on only during a read: a slow client is not a silent provider.
	timer *time.Timer
	// total runs until the end of the call's total time.
	total *time.Timer
}

// startCallTimer starts the time limits of a call.
func startCallTimer(ctx context.Context, limits Limits) (context.Context, *callTimer) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &callTimer{cancel: cancel, idleTimeout: limits.Idle}
	w.timer = time.AfterFunc(limits.FirstByte, w.expire)
	w.total = time.AfterFunc(limits.Total, func() { cancel(provider.ErrTotalTimeout) })
	return ctx, w
}

func (w *callTimer) expire() {
	if w.started.Load() {
		w.cancel(provider.ErrIdleTimeout)
	} else {
		w.cancel(provider.ErrFirstByteTimeout)
	}
}

// beforeRead and afterRead are called around each read of the answer.
func (w *callTimer) beforeRead() {
	if w.started.Load() {
		w.timer.Reset(w.idleTimeout)
	}
}

func (w *callTimer) afterRead(n int) {
	if n > 0 || w.started.Load() {
		w.timer.Stop()
		w.started.Store(true)
	}
}

// stop ends the call.
func (w *callTimer) stop() {
	w.timer.Stop()
	w.total.Stop()
	w.cancel(nil)
}

// timedBody reads an answer under its time limits.
type timedBody struct {
	provider.NoAwait
	ctx   context.Context
	timer *callTimer
}

// Read reads the body. If the context or a time limit has ended the call, that is the error.
func (b *timedBody) Read(p []byte) (int, error) {
	b.timer.beforeRead()
	n, err := b.ReadCloser.Read(p)
	b.timer.afterRead(n)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close ends the call.
func (b *timedBody) Close() error {
	b.timer.stop()
	return b.ReadCloser.Close() //nolint:wrapcheck // passed through as the body's own
}
