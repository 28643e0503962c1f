// Package webhooksender sends webhooks over HTTP: one attempt, bounded in time
// and size.
//
// Customers choose the URLs, so the sender defends against server-side request
// forgery. Addresses are checked when they are dialled, after the host name has
// been resolved: public addresses pass, others only if the configuration allows
// them. The sender follows no redirect, uses no proxy, verifies certificates,
// and reads only the beginning of a response.
package webhooksender

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

// Config configures a Sender.
type Config struct {
	// Allowed are networks that may be called although they are not public.
	Allowed []netip.Prefix
	// Timeout bounds an attempt; zero means 15 seconds.
	Timeout time.Duration
	// UserAgent is sent with every request.
	UserAgent string
	// Roots are the certificate authorities that are trusted; nil means those of the system.
	Roots *x509.CertPool
}

const (
	defaultTimeout = 15 * time.Second
	// maxResponse bounds how much of a response is read, in bytes.
	maxResponse = 4 << 10
)

// Sender implements webhook.Sender. It is safe for concurrent use.
type Sender struct {
	cfg    Config
	client *http.Client
}

var _ webhook.Sender = (*Sender)(nil)

// New returns a Sender.
func New(cfg Config) *Sender {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}

	dialer := &net.Dialer{Timeout: cfg.Timeout, KeepAlive: -1, ControlContext: checkAddress(cfg.Allowed)}
	return &Sender{cfg: cfg, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.Roots},
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 32 << 10,
			DisableCompression:     true, // a small response must not become a large one
		},
	}}
}

// Close closes idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Send implements webhook.Sender. Any status of 200 to 299 is a success.
func (s *Sender) Send(ctx context.Context, m webhook.Message) (a webhook.Attempt) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	start := time.Now()
	defer func() { a.Latency = time.Since(start) }()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return webhook.Attempt{Error: webhook.Unreachable}
	}

	r.Header = m.Header.Clone()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", s.cfg.UserAgent)
	response, err := s.client.Do(r)
	if err != nil {
		return webhook.Attempt{Error: classOf(err)}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	a.Status = response.StatusCode
	switch {
	case response.StatusCode >= 300 && response.StatusCode < 400:
		a.Error = webhook.Redirected
	case response.StatusCode < 200 || response.StatusCode >= 300:
		a.Error = webhook.Refused
		a.Excerpt = excerpt(response.Header, body)
	case err != nil:
		a.Error = classOf(err)
	}

	return a
}

// excerpt returns the beginning of a failed response for the delivery record;
// empty unless the response is text.
func excerpt(h http.Header, body []byte) string {
	media := h.Get("Content-Type")
	if !strings.HasPrefix(media, "text/") && !strings.Contains(media, "json") {
		return ""
	}
	return webhook.Excerpt(body)
}

var errForbidden = errors.New("webhooksender: the address is neither public nor allowed")

// classOf returns the error class of a failed attempt.
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

// checkAddress returns a dial hook that rejects resolved addresses that are
// neither public nor allowed.
func checkAddress(allowed []netip.Prefix) func(context.Context, string, string, syscall.RawConn) error {
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

// notPublic are networks that are not part of the public Internet, or whose
// addresses embed addresses of other networks, and that netip does not report.
var notPublic = prefixes(
	"0.0.0.0/8",
	"100.64.0.0/10",
	"192.0.0.0/24",
	"192.0.2.0/24",
	"192.88.99.0/24",
	"198.18.0.0/15",
	"198.51.100.0/24",
	"203.0.113.0/24",
	"240.0.0.0/4",
	"::/96",
	"64:ff9b::/96",
	"64:ff9b:1::/48",
	"100::/64",
	"2001::/23",
	"2001:db8::/32",
	"2002::/16",
	"3fff::/20",
	"5f00::/16",
	"fec0::/10",
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// Public reports whether an address belongs to the public Internet.
func Public(ip netip.Addr) bool {
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return false
	}
	return !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(ip) })
}
