// Package upstream owns the connections to providers: it performs the calls that package provider defines, with the
// gateway's own headers and the time limits of the provider. Headers of a client are never sent.
//
// It has its own HTTP/1.1 client: the goroutine that serves a request writes the call and reads the answer itself.
// The transport of net/http hands both over to further goroutines, which costs more than everything else in a request.
// Heads, chunks and trailers are still parsed by net/http, and HTTP/2 is left to its transport.
//
// A call on its way: a connection is taken from the pool of the provider's address, after a look at its socket: one that
// the provider has closed, or on which bytes wait, is not used. Head and body are written, the head of the answer is read
// within its time limit, and the caller reads the body. A connection whose answer was read to its end goes back to the
// pool. When something fails, provider.Failure says whether nothing was sent, and whether the provider has answered.
package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/upstream/credential"
)

// Limits are the time limits of a call: for connecting, until the first byte of the body, between two bytes, and in
// total, which is zero for a call that may last for as long as bytes come.
type Limits struct {
	Connect, FirstByte, Idle, Total time.Duration
}

// DefaultLimits are the limits for a provider that sets none. They suit models that reason: these may send nothing for
// minutes, before an answer in one piece and in the middle of a stream. A stream that flows is never cut. That the host of a
// provider is gone, the probes of TCP notice earlier.
var DefaultLimits = Limits{
	Connect:   5 * time.Second,
	FirstByte: 10 * time.Minute,
	Idle:      10 * time.Minute,
}

// noLimit takes the place of no limit.
const noLimit = 1000 * 24 * time.Hour

// userAgent is the User-Agent of calls.
const userAgent = "modelgateway/1"

const (
	// maxIdleConns bounds the number of idle connections to one provider; idleConnTimeout is how long one is kept.
	maxIdleConns    = 2048
	idleConnTimeout = 90 * time.Second
	// maxSingleWrite is the size up to which a call is sent with one write, in bytes.
	maxSingleWrite = 16 << 10
)

// Client calls providers. It is safe for concurrent use.
type Client struct {
	// Credentials renews those credentials that are no fixed secrets. It may be nil if all are.
	Credentials *credential.Sources

	limits Limits
	// standard is set by tests, which compare all calls with those through the transport of net/http.
	standard bool
	dial     dialFunc
	// proxy returns the forward proxy for calls to an address, nil for none.
	proxy func(*url.URL) (*url.URL, error)

	mu         sync.RWMutex
	transports map[transportKey]transport
}

// transportKey has those properties of a provider on which its connections depend.
type transportKey struct {
	provider, base       string
	http2                bool
	connect              time.Duration
	proxy                string
	rootsID, certificate string
}

// transport sends the calls to one provider.
type transport interface {
	// send performs a call. If the context or a time limit has ended the call, the error is the cause of that, such as
	// provider.ErrIdleTimeout.
	send(ctx context.Context, call *provider.Call, limits Limits) (*provider.Answer, error)
	// close closes idle connections.
	close()
	// address returns the base URL of the provider.
	address() *url.URL
}

// dialFunc connects like net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// New returns a Client. Zero limits mean the defaults.
func New(limits Limits) *Client {
	limits.Connect = orDefault(limits.Connect, DefaultLimits.Connect)
	limits.FirstByte = orDefault(limits.FirstByte, DefaultLimits.FirstByte)
	limits.Idle = orDefault(limits.Idle, DefaultLimits.Idle)
	dialer := &net.Dialer{KeepAlive: 30 * time.Second}
	return &Client{
		limits:     limits,
		dial:       dialer.DialContext,
		transports: map[transportKey]transport{},
	}
}

func orDefault(d, other time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return other
}

// Close closes idle connections and stops the renewal of credentials.
func (c *Client) Close() {
	if c.Credentials != nil {
		c.Credentials.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.transports {
		e.close()
	}
}

// LimitsOf returns the time limits of calls to a provider.
func (c *Client) LimitsOf(p *catalog.Provider) Limits {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Limits{
		Connect:   orDefault(ms(p.ConnectTimeoutMS), c.limits.Connect),
		FirstByte: orDefault(ms(p.FirstByteTimeoutMS), c.limits.FirstByte),
		Idle:      orDefault(ms(p.IdleTimeoutMS), c.limits.Idle),
		Total:     orDefault(ms(p.TotalTimeoutMS), c.limits.Total),
	}
}

// ProxyFrom sets where the forward proxies of providers that name none come from, such as the environment. It is called
// before the first call. The function returns nil for an address that needs none.
func (c *Client) ProxyFrom(proxy func(*url.URL) (*url.URL, error)) { c.proxy = proxy }

// transportOf returns the transport to a provider for calls with a credential and creates it for the first call.
func (c *Client) transportOf(p *catalog.Provider, credential catalog.Credential, connect time.Duration) (transport, error) {
	certificate, certificateID := credential.Certificate()
	key := transportKey{
		provider:    p.ID,
		base:        p.BaseURL,
		http2:       p.HTTP2,
		connect:     connect,
		proxy:       p.Proxy,
		rootsID:     p.RootsID,
		certificate: certificateID,
	}
	c.mu.RLock()
	known := c.transports[key]
	c.mu.RUnlock()
	if known != nil {
		return known, nil
	}

	base, err := url.Parse(p.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("upstream: base URL of provider %s: %w", p.ID, err)
	}

	proxy, err := c.proxyOf(p, base)
	if err != nil {
		return nil, fmt.Errorf("upstream: forward proxy of provider %s: %w", p.ID, err)
	}
	secured := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.Roots}
	if certificate != nil {
		secured.Certificates = []tls.Certificate{*certificate}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transports[key] == nil {
		c.transports[key] = c.newTransport(base, p.HTTP2, connect, secured, proxy)
	}

	return c.transports[key], nil
}

// proxyOf returns the forward proxy for the calls to a provider, nil for none.
func (c *Client) proxyOf(p *catalog.Provider, base *url.URL) (*url.URL, error) {
	switch {
	case p.Proxy != "":
		return url.Parse(p.Proxy) //nolint:wrapcheck // transportOf says whose proxy it is
	case c.proxy != nil:
		return c.proxy(base)
	default:
		return nil, nil //nolint:nilnil // none
	}
}

func (c *Client) newTransport(base *url.URL, http2 bool, connect time.Duration, secured *tls.Config, proxy *url.URL) transport {
	if !http2 && !c.standard && proxy == nil { // forward proxies are left to net/http
		if p := newPool(base, connect, c.dial, secured); p != nil {
			return p
		}
	}
	return newStdTransport(base, http2, connect, c.dial, secured, proxy)
}

// Do performs a call. The context ends the call and the reading of its answer. An error is a *provider.Failure.
func (c *Client) Do(ctx context.Context, call *provider.Call) (*provider.Answer, error) {
	limits := c.LimitsOf(call.Provider)
	limits.Total = orDefault(limits.Total, noLimit)
	target, err := c.transportOf(call.Provider, call.Credential, limits.Connect)
	if err != nil {
		return nil, provider.CallFailure(call, err)
	}
	answer, err := c.send(ctx, target, call, limits)
	if err != nil {
		return nil, err
	}
	decode(answer)
	if isFramed(call) {
		unframe(answer)
	}
	return answer, nil
}

// send performs a call with its credential, which may need to be renewed before.
func (c *Client) send(ctx context.Context, target transport, call *provider.Call, limits Limits) (*provider.Answer, error) {
	if call.Credential.Kind == "" {
		return sendOnce(ctx, target, call, limits)
	}

	parameters := call.Credential
	for {
		token, err := c.Credentials.Token(ctx, call.Provider.ID, parameters)
		if err == nil {
			err = authenticate(ctx, target, call, token)
		}
		if err != nil {
			return nil, provider.NoTokenFailure(call, err)
		}
		answer, err := sendOnce(ctx, target, call, limits)
		if err != nil || !refusesToken(answer) || !c.Credentials.Rejected(parameters, token) {
			return answer, err
		}
		_ = answer.Body.Close() // the token has ended early: once more with a new one
	}
}

func sendOnce(ctx context.Context, target transport, call *provider.Call, limits Limits) (*provider.Answer, error) {
	answer, err := target.send(ctx, call, limits)
	if err != nil {
		return nil, provider.CallFailure(call, err)
	}
	return answer, nil
}

// authenticate puts a token into a call.
func authenticate(ctx context.Context, target transport, call *provider.Call, token *credential.Token) error {
	call.Credential = call.Credential.WithText(token.Text)
	if token.Keys == nil {
		return nil
	}
	signature, err := sign(ctx, target.address(), call, token, time.Now())
	call.Signature = signature
	return err
}

// refusesToken reports whether the provider does not accept the token of a call, such as because it has ended before its
// time. The error of AWS names the reason, since it has the same status as a missing permission.
func refusesToken(a *provider.Answer) bool {
	if a.Status == http.StatusForbidden {
		reason, _, _ := strings.Cut(a.Header.Get("X-Amzn-Errortype"), ":")
		return reason == "ExpiredTokenException" || reason == "UnrecognizedClientException" || reason == "InvalidSignatureException"
	}
	return a.Status == http.StatusUnauthorized
}

// targetOf returns the URL of a call.
func targetOf(base *url.URL, call *provider.Call) url.URL {
	target := *base
	path, err := url.PathUnescape(call.Path)
	if err != nil { // the control plane accepts no such address; the provider decides about it
		path = call.Path
	}
	target.Path += path
	target.RawPath = base.EscapedPath() + call.Path
	target.RawQuery = call.Query
	return target
}

func methodOf(call *provider.Call) string {
	if call.Method == "" {
		return http.MethodPost
	}
	return call.Method
}
