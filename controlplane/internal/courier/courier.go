// Package courier owns the way of a webhook out of the network: one attempt
// over HTTP, within bounds of time and size.
//
// Whoever names an endpoint's address must not reach what only this network
// can reach. So addresses are judged when they are dialled, after the host was
// resolved: public ones pass, others only if the configuration allows them. No
// redirect is followed, no proxy is used, certificates are checked, and of an
// answer only the beginning is read.
package courier

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"modelgateway/controlplane/internal/webhook"
)

// Config says what is allowed.
type Config struct {
	// Allowed are networks that may be spoken to although they are not public.
	Allowed []netip.Prefix
	// Timeout bounds an attempt; zero means 15 seconds.
	Timeout time.Duration
	// UserAgent names the sender.
	UserAgent string
	// Roots are what certificates are checked against; nil for those of the system.
	Roots *x509.CertPool
}

const (
	defaultTimeout = 15 * time.Second
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 4 << 10
)

// Courier implements webhook.Sender. It is safe for concurrent use.
type Courier struct {
	cfg    Config
	client *http.Client
}

var _ webhook.Sender = (*Courier)(nil)

// New returns a Courier.
func New(cfg Config) *Courier {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	dialer := &net.Dialer{Timeout: cfg.Timeout, KeepAlive: -1, ControlContext: guard(cfg.Allowed)}
	return &Courier{cfg: cfg, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.Roots},
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 32 << 10,
			DisableCompression:     true, // a small answer may not grow
		},
	}}
}

// Close ends idle connections.
func (c *Courier) Close() { c.client.CloseIdleConnections() }

// Send implements webhook.Sender. Any status of 200 to 299 is a success.
func (c *Courier) Send(ctx context.Context, m webhook.Message) (a webhook.Attempt) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	start := time.Now()
	defer func() { a.Latency = time.Since(start) }()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return webhook.Attempt{Error: webhook.Unreachable}
	}
	r.Header = m.Header.Clone()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", c.cfg.UserAgent)
	answer, err := c.client.Do(r)
	if err != nil {
		return webhook.Attempt{Error: classOf(err)}
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	a.Status = answer.StatusCode
	switch {
	case answer.StatusCode >= 300 && answer.StatusCode < 400:
		a.Error = webhook.Redirected
	case answer.StatusCode < 200 || answer.StatusCode >= 300:
		a.Error = webhook.Refused
		a.Excerpt = excerpt(answer.Header, body)
	case err != nil:
		a.Error = classOf(err)
	}
	return a
}

// excerpt is what may be kept of a refusal: of text only.
func excerpt(h http.Header, body []byte) string {
	media := h.Get("Content-Type")
	if !strings.HasPrefix(media, "text/") && !strings.Contains(media, "json") {
		return ""
	}
	return webhook.Excerpt(body)
}

var errForbidden = errors.New("courier: the address may not be spoken to")

// classOf finds the class of a failure.
func classOf(err error) webhook.Class {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, errForbidden):
		return webhook.Forbidden
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return webhook.TimedOut
	case errors.As(err, &dns):
		return webhook.Unresolved
	case errors.As(err, &certificate), errors.As(err, &record):
		return webhook.Untrusted
	default:
		return webhook.Unreachable
	}
}

// guard refuses addresses, once they are known, that are not public and not
// allowed.
func guard(allowed []netip.Prefix) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %w", errForbidden, err)
		}
		ip := at.Addr().Unmap().WithZone("")
		if !Public(ip) && !slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return errForbidden
		}
		return nil
	}
}

// special are networks that are no part of the public Internet, or that carry
// addresses of other networks in theirs, beside those that package netip knows.
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// Public tells whether an address is one of the public Internet.
func Public(ip netip.Addr) bool {
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) })
}
