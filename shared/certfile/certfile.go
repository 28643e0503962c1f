// Package certfile serves TLS with a certificate from files, which may be replaced while the
// process runs.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Files names the files of a server certificate, in PEM.
type Files struct {
	// Cert holds the certificate and its chain.
	Cert string
	Key  string
}

// Validate returns an error if only one file is named.
func (f Files) Validate() error {
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("cert_file and key_file belong together")
	}
	return nil
}

// Expiry returns the time at which the first certificate of a file in PEM expires.
func Expiry(file string) (time.Time, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("certfile: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}, fmt.Errorf("certfile: %s has no certificate", file)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("certfile: %s: %w", file, err)
	}
	return certificate.NotAfter, nil
}

// FirstExpiry returns the time at which the first of the certificates of a text in PEM expires, whatever their order; zero if it
// has none.
func FirstExpiry(text string) (first time.Time) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && (first.IsZero() || certificate.NotAfter.Before(first)) {
			first = certificate.NotAfter
		}
	}
	return first
}

// checkEvery is how often the files are looked at, at most.
const checkEvery = time.Second

// Listen returns a listener that serves TLS 1.2 or later, or l itself if no files are named. HTTP/2
// is not offered. A certificate that cannot be read later is reported to failed, and the one before
// stays in use.
func Listen(l net.Listener, f Files, failed func(error)) (net.Listener, error) {
	if f.Cert == "" {
		return l, nil
	}
	s := &source{files: f, failed: failed}
	if err := s.load(time.Now()); err != nil {
		return nil, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.current(time.Now()), nil },
	}), nil
}

// source is the certificate of the files.
type source struct {
	files  Files
	failed func(error)

	mu      sync.Mutex
	cert    *tls.Certificate
	checked time.Time
	// modified are the modification times of the files that were read last.
	modified [2]time.Time
}

// load reads the files if they have changed. The caller holds mu, or is the only one.
func (s *source) load(now time.Time) error {
	s.checked = now
	var modified [2]time.Time
	for i, name := range []string{s.files.Cert, s.files.Key} {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("certfile: %w", err)
		}
		modified[i] = info.ModTime()
	}

	if s.cert != nil && modified == s.modified {
		return nil
	}

	cert, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return fmt.Errorf("certfile: %w", err)
	}

	s.cert, s.modified = &cert, modified
	return nil
}

// current returns the certificate in use.
func (s *source) current(now time.Time) *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.checked) >= checkEvery {
		if err := s.load(now); err != nil {
			s.failed(err)
		}
	}
	return s.cert
}
