package certfile

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"
)

// Peer knows when the certificate of a server expires that a client connected to. It
// is safe for concurrent use.
type Peer struct {
	// expires is the expiry in the newest handshake; nil before the first.
	expires atomic.Pointer[time.Time]
}

// Watch sets config so that p sees its handshakes, and returns it. A nil config
// stands for a new one.
func (p *Peer) Watch(config *tls.Config) *tls.Config {
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		p.expires.Store(&state.PeerCertificates[0].NotAfter) // a server always has one
		return nil
	}
	return config
}

// Expiry returns when the certificate of the newest handshake expires, or an error
// if there was none.
func (p *Peer) Expiry() (time.Time, error) {
	at := p.expires.Load()
	if at == nil {
		return time.Time{}, errors.New("certfile: no connection with TLS was made")
	}
	return *at, nil
}
