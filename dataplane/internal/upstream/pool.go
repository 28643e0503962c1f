package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"modelgateway/dataplane/internal/provider"
)

// pool holds the HTTP/1.1 connections to one provider.
type pool struct {
	base    *url.URL
	host    string
	connect time.Duration
	dial    dialFunc
	// tlsConfig is nil for connections without TLS.
	tlsConfig *tls.Config
	heads     headCache

	mu sync.Mutex
	// idle has the unused connections, the most recently used at the end.
	idle []*conn
	// sweeper closes connections that have been idle for too long. It is nil while there are none.
	sweeper *time.Timer
}

// newPool returns nil for an address that it does not support.
func newPool(base *url.URL, connect time.Duration, dial dialFunc, secured *tls.Config) *pool {
	host, port := base.Hostname(), base.Port()
	p := &pool{base: base, connect: connect, dial: dial}
	switch base.Scheme {
	case "http":
		port = cmp.Or(port, "80")
	case "https":
		port = cmp.Or(port, "443")
		p.tlsConfig = secured
		p.tlsConfig.ServerName = host
	default:
		return nil
	}

	for i := range len(host) {
		if host[i] <= ' ' || host[i] > '~' { // a host name that needs encoding
			return nil
		}
	}

	p.host = net.JoinHostPort(host, port)
	return p
}

// send performs a call. If an idle connection turns out to be dead, it repeats the call on another, provided that the
// call is repeatable and no byte of an answer has come.
func (p *pool) send(ctx context.Context, call *provider.Call, limits Limits) (*provider.Answer, error) {
	now := time.Now()
	a := &answerBody{ctx: ctx, idleTimeout: limits.Idle, totalDeadline: now.Add(limits.Total)}
	a.deadline = a.totalDeadline
	if first := now.Add(limits.FirstByte); first.Before(a.totalDeadline) {
		a.deadline = first
	}

	repeatable := p.heads.get(call).repeatable
	for {
		c, err := p.get(ctx, a.deadline)
		if err != nil {
			return nil, a.cause(err)
		}
		answer, err := a.exchange(c, call)
		if err == nil {
			return answer, nil
		}
		if dead := c.reused && c.received == 0; !dead || !repeatable || ctx.Err() != nil || timedOut(err) {
			return nil, a.cause(err)
		}
	}
}

// get returns a connection: the idle one that was used last, because it is the most likely to be alive, or a new one.
func (p *pool) get(ctx context.Context, until time.Time) (*conn, error) {
	for {
		c := p.pop()
		if c == nil {
			break
		}
		if c.canServe() {
			_ = c.SetDeadline(until) // the next use reports that a connection is closed
			return c, nil
		}
		_ = c.Close()
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return p.open(ctx, until)
}

func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	c := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	c.reused, c.received = true, 0
	return c
}

// put returns a reusable connection to the pool.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= maxIdleConns {
		_ = c.Close()
		return
	}
	c.idleSince = time.Now()
	p.idle = append(p.idle, c)
	if p.sweeper == nil {
		p.sweeper = time.AfterFunc(idleConnTimeout, p.sweep)
	}
}

// sweep closes the connections that have been idle for too long.
func (p *pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].idleSince) >= idleConnTimeout {
		_ = p.idle[old].Close()
		old++
	}
	p.idle = append(p.idle[:0], p.idle[old:]...)
	clear(p.idle[len(p.idle):cap(p.idle)])
	if len(p.idle) == 0 {
		p.sweeper = nil
		return
	}
	p.sweeper.Reset(idleConnTimeout - time.Since(p.idle[0].idleSince))
}

func (p *pool) address() *url.URL { return p.base }

// close closes the idle connections.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		_ = c.Close()
	}
	p.idle = nil
	if p.sweeper != nil {
		p.sweeper.Stop()
		p.sweeper = nil
	}
}

// open makes a connection.
func (p *pool) open(ctx context.Context, until time.Time) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, min(p.connect, time.Until(until)))
	defer cancel()
	plain, err := p.dial(ctx, "tcp", p.host)
	if err != nil {
		return nil, err // unwrapped: its type shows that nothing was sent
	}
	c := newConn(plain, p, p.tlsConfig)
	if secured, ok := c.Conn.(*tls.Conn); ok {
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = plain.Close()
			return nil, fmt.Errorf("tls handshake: %w", err)
		}
	}
	_ = c.SetDeadline(until) // the next use reports that a connection is closed
	return c, nil
}

// timedOut reports whether an error is a passed deadline of a connection.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
