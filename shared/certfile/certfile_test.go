package certfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// write writes a certificate for 127.0.0.1 with a serial number.
func write(t *testing.T, f Files, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []struct{ name, kind, content string }{{f.Cert, "CERTIFICATE", string(cert)}, {f.Key, "PRIVATE KEY", string(private)}} {
		text := pem.EncodeToMemory(&pem.Block{Type: file.kind, Bytes: []byte(file.content)})
		if err := os.WriteFile(file.name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		// Two writes within the resolution of the file system's clock must differ.
		at := time.Unix(serial, 0)
		if err := os.Chtimes(file.name, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func newFiles(t *testing.T) Files {
	t.Helper()
	dir := t.TempDir()
	return Files{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

func serial(t *testing.T, c *tls.Certificate) int64 {
	t.Helper()
	parsed, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return parsed.SerialNumber.Int64()
}

func TestReplacedCertificateIsUsed(t *testing.T) {
	t.Parallel()
	f, now := newFiles(t), time.Now()
	write(t, f, 1)
	var failures []error
	s := &source{files: f, failed: func(err error) { failures = append(failures, err) }}
	if err := s.load(now); err != nil {
		t.Fatal(err)
	}
	write(t, f, 2)
	if got := serial(t, s.current(now.Add(checkEvery/2))); got != 1 {
		t.Errorf("certificate %d before the next check; want 1", got)
	}
	now = now.Add(checkEvery)
	if got := serial(t, s.current(now)); got != 2 {
		t.Errorf("certificate %d after the files changed; want 2", got)
	}
	if err := os.WriteFile(f.Cert, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(checkEvery)
	if got := serial(t, s.current(now)); got != 2 || len(failures) != 1 {
		t.Errorf("certificate %d and failures %v with a broken file; want 2, reported", got, failures)
	}
}

func TestListenerServesTLS(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	var lc net.ListenConfig
	plain, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close() })
	if same, err := Listen(plain, Files{}, nil); err != nil || same != plain {
		t.Errorf("without files: %v, %v; want the listener itself", same, err)
	}
	if _, err := Listen(plain, f, nil); err == nil {
		t.Error("missing files are accepted")
	}
	write(t, f, 7)
	l, err := Listen(plain, f, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("hello"))
			_ = c.Close()
		}
	}()
	text, err := os.ReadFile(f.Cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	client := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}}
	c, err := client.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	greeting := make([]byte, 5)
	if _, err := c.Read(greeting); err != nil || string(greeting) != "hello" {
		t.Errorf("read %q, %v", greeting, err)
	}
	if got := c.(*tls.Conn).ConnectionState(); got.NegotiatedProtocol != "http/1.1" || got.PeerCertificates[0].SerialNumber.Int64() != 7 {
		t.Errorf("negotiated %q with certificate %s", got.NegotiatedProtocol, got.PeerCertificates[0].SerialNumber)
	}
}
