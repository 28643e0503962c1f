package httpapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"modelgateway/dataplane/internal/httpapi/clientconn"
	"modelgateway/shared/certfile"
)

// certificate writes the certificate of package httptest, which is valid for example.com.
func certificate(t *testing.T) (f certfile.Files, roots *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f = certfile.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	for name, block := range map[string]*pem.Block{
		f.Cert: {Type: "CERTIFICATE", Bytes: server.Certificate().Raw}, f.Key: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return f, roots
}

// With a certificate, answers and early refusals are the same as without one.
func TestPublicAPIServesTLS(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatJSON)
	})
	files, roots := certificate(t)
	var lc net.ListenConfig
	plain, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := certfile.Listen(clientconn.Sockets(plain), files, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.api.Serve(listener) }()
	defer func() {
		if err := g.api.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	for _, tt := range []struct {
		key, body string
		want      int
	}{
		{g.key, `{"model":"text","messages":[{"role":"user","content":"hi"}]}`, http.StatusOK},
		{g.key, largeBody, http.StatusOK},
		{"wrong", strings.Repeat("x", 1<<20), http.StatusUnauthorized},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+plain.Addr().String()+"/v1/chat/completions", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+tt.key)
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != tt.want || answer.Header.Get("X-Request-Id") == "" {
			t.Errorf("got %d %s, %v; want %d", answer.StatusCode, text, err, tt.want)
		}
	}
}
