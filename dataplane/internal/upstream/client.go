// Package upstream owns the connections to providers: it performs the calls
// that package provider describes, with the gateway's own headers and the
// provider's time limits. A client's headers never enter it.
package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
)

// Limits are the time limits of a call where the provider sets none.
type Limits struct {
	Connect, FirstByte, Idle, Total time.Duration
}

// DefaultLimits fit language models: slow to begin, steady once begun.
var DefaultLimits = Limits{Connect: 5 * time.Second, FirstByte: 5 * time.Minute, Idle: 2 * time.Minute, Total: 10 * time.Minute}

// maxTotal is the longest call that the protocol covers: the control plane
// keeps the lease of a silent proxy for longer than that.
const maxTotal = 10 * time.Minute

// userAgent is what providers see of the caller.
const userAgent = "modelgateway/1"

// Client calls providers. It is safe for concurrent use.
type Client struct {
	limits Limits
	dial   dial

	mu        sync.RWMutex
	endpoints map[endpointKey]*endpoint
}

// endpointKey is all of a provider that its connections depend on.
type endpointKey struct {
	provider, base string
	http2          bool
	connect        time.Duration
}

// endpoint is where a provider's calls go to.
type endpoint struct {
	base      *url.URL
	transport *http.Transport
	headers   headers
}

// dial connects, as net.Dialer does.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

// New returns a Client; zero limits take the defaults.
func New(limits Limits) *Client {
	limits.Connect = orElse(limits.Connect, DefaultLimits.Connect)
	limits.FirstByte = orElse(limits.FirstByte, DefaultLimits.FirstByte)
	limits.Idle = orElse(limits.Idle, DefaultLimits.Idle)
	limits.Total = orElse(limits.Total, DefaultLimits.Total)
	dialer := &net.Dialer{KeepAlive: 30 * time.Second}
	return &Client{limits: limits, dial: dialer.DialContext, endpoints: map[endpointKey]*endpoint{}}
}

func orElse(d, other time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return other
}

// Close closes idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.endpoints {
		e.transport.CloseIdleConnections()
	}
}

// LimitsOf are the time limits of calls to a provider.
func (c *Client) LimitsOf(p *catalog.Provider) Limits {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Limits{
		Connect:   orElse(ms(p.ConnectTimeoutMS), c.limits.Connect),
		FirstByte: orElse(ms(p.FirstByteTimeoutMS), c.limits.FirstByte),
		Idle:      orElse(ms(p.IdleTimeoutMS), c.limits.Idle),
		Total:     min(orElse(ms(p.TotalTimeoutMS), c.limits.Total), maxTotal),
	}
}

// endpoint returns a provider's, which it makes for the first call.
func (c *Client) endpoint(p *catalog.Provider, connect time.Duration) (*endpoint, error) {
	key := endpointKey{p.ID, p.BaseURL, p.HTTP2, connect}
	c.mu.RLock()
	known := c.endpoints[key]
	c.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	base, err := url.Parse(p.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("upstream: base URL of provider %s: %w", p.ID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endpoints[key] == nil {
		c.endpoints[key] = &endpoint{base: base, transport: c.newTransport(p.HTTP2, connect)}
	}
	return c.endpoints[key], nil
}

func (c *Client) newTransport(http2 bool, connect time.Duration) *http.Transport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, connect)
			defer cancel()
			return c.dial(ctx, network, address)
		},
		TLSHandshakeTimeout: connect,
		MaxIdleConns:        0, // no limit over all hosts: there is one host
		MaxIdleConnsPerHost: 2048,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     16 << 10,
		ReadBufferSize:      8 << 10,
		ForceAttemptHTTP2:   http2,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if !http2 {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return t
}

// Do sends a call. The context ends the call and the reading of its answer. An
// error is a *provider.Failure unless the context ended.
func (c *Client) Do(ctx context.Context, call provider.Call) (*provider.Answer, error) {
	limits := c.LimitsOf(call.Provider)
	target, err := c.endpoint(call.Provider, limits.Connect)
	if err != nil {
		return nil, provider.Failed(&call, err)
	}
	ctx, watch := startWatch(ctx, limits)
	response, err := target.transport.RoundTrip(newRequest(ctx, &call, target)) //nolint:bodyclose // timedBody closes it
	if err != nil {
		cause := context.Cause(ctx)
		watch.end()
		if cause != nil {
			err = cause
		}
		return nil, provider.Failed(&call, err)
	}
	body := &timedBody{ReadCloser: response.Body, ctx: ctx, watch: watch}
	return &provider.Answer{Status: response.StatusCode, Header: response.Header, Body: body, Length: response.ContentLength}, nil
}

func newRequest(ctx context.Context, call *provider.Call, to *endpoint) *http.Request {
	target := *to.base
	target.Path += call.Path
	target.RawQuery = call.Query
	method := call.Method
	if method == "" {
		method = http.MethodPost
	}
	request := &http.Request{
		Method: method, URL: &target, Host: target.Host, Header: to.headers.of(call),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if call.Body != nil {
		ctx = httptrace.WithClientTrace(ctx, holdBody(call.Body))
		request.Body, request.ContentLength = call.Body.Open(), int64(call.Body.Len())
		if call.IdempotencyKey == "" { // without it, the transport repeats nothing by itself: what is made once must not be made twice
			request.GetBody = func() (io.ReadCloser, error) { return call.Body.Open(), nil }
		}
	}
	return request.WithContext(ctx)
}

// holdBody holds a body from when a connection may read it until the request
// is written. A connection that breaks may not say so: then the body is not
// given back.
func holdBody(body *provider.Body) *httptrace.ClientTrace {
	var writing atomic.Int32
	return &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			writing.Add(1)
			body.Hold()
		},
		WroteRequest: func(httptrace.WroteRequestInfo) {
			if writing.Add(-1) >= 0 {
				body.Release()
			}
		},
	}
}
