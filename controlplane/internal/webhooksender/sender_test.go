package webhooksender_test

import (
	"bytes"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"modelgateway/controlplane/internal/webhook"
	"modelgateway/controlplane/internal/webhooksender"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func message(url string) webhook.Message {
	return webhook.Message{URL: url, Header: http.Header{"Webhook-Id": {"evt_1"}}, Body: []byte(`{"type":"webhook.test"}`)}
}

func TestSendReportsTheErrorClass(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("POST /good", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != `{"type":"webhook.test"}` || r.Header.Get("Webhook-Id") != "evt_1" ||
			r.Header.Get("Content-Type") != "application/json" || r.Header.Get("User-Agent") != "gateway/1" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { followed.Store(true) })
	mux.HandleFunc("POST /refused", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte("no\r\n\tthank\x00 you" + strings.Repeat("!", 1000)))
	})
	mux.HandleFunc("POST /leak", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"secret":"whsec_AAAA"}`))
	})
	mux.HandleFunc("POST /binary", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte("text after all"))
	})
	mux.HandleFunc("POST /endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("POST /silent", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices the client's leaving
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c := webhooksender.New(webhooksender.Config{Allowed: loopback, UserAgent: "gateway/1"})
	t.Cleanup(c.Close)
	for _, test := range []struct {
		path    string
		status  int
		class   webhook.Class
		excerpt string
	}{
		{"/good", 204, "", ""},
		{"/moved", 307, webhook.Redirected, ""},
		{"/refused", 400, webhook.Refused, "no thank you" + strings.Repeat("!", 188)},
		{"/leak", 500, webhook.Refused, ""},
		{"/binary", 500, webhook.Refused, ""},
		{"/endless", 200, "", ""},
		{"/nowhere", 404, webhook.Refused, "404 page not found"},
	} {
		a := c.Send(t.Context(), message(server.URL+test.path))
		if a.Status != test.status || a.Error != test.class || a.Excerpt != test.excerpt || a.Latency <= 0 {
			t.Errorf("%s: got %+v; want %d %q %q", test.path, a, test.status, test.class, test.excerpt)
		}
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
	short := webhooksender.New(webhooksender.Config{Allowed: loopback, Timeout: 50 * time.Millisecond})
	t.Cleanup(short.Close)
	if a := short.Send(t.Context(), message(server.URL+"/silent")); a.Error != webhook.TimedOut || a.Status != 0 {
		t.Errorf("silent: got %+v; want a timeout", a)
	}
}

func TestSendVerifiesCertificates(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	c := webhooksender.New(webhooksender.Config{Allowed: loopback})
	t.Cleanup(c.Close)
	if a := c.Send(t.Context(), message(server.URL)); a.Error != webhook.Untrusted {
		t.Errorf("unknown authority: got %+v; want %s", a, webhook.Untrusted)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	trusting := webhooksender.New(webhooksender.Config{Allowed: loopback, Roots: roots})
	t.Cleanup(trusting.Close)
	if a := trusting.Send(t.Context(), message(server.URL)); a.Error != "" || a.Status != http.StatusOK {
		t.Errorf("known authority: got %+v; want 200", a)
	}
}

func TestUnreachableEndpoint(t *testing.T) {
	t.Parallel()
	c := webhooksender.New(webhooksender.Config{Allowed: loopback})
	t.Cleanup(c.Close)
	if a := c.Send(t.Context(), message("http://127.0.0.1:1")); a.Error != webhook.Unreachable {
		t.Errorf("got %+v; want %s", a, webhook.Unreachable)
	}
}

// Private addresses are not dialled, whatever name or notation is used.
func TestPrivateAddressIsNotDialled(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := webhooksender.New(webhooksender.Config{Allowed: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	t.Cleanup(c.Close)
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "[fe80::1]", "192.168.1.1"} {
		if a := c.Send(t.Context(), message("http://"+host+":"+port)); a.Error != webhook.Forbidden {
			t.Errorf("%s: got %+v; want %s", host, a, webhook.Forbidden)
		}
	}
	if reached.Load() {
		t.Error("the loopback address was called")
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"1.1.1.1": true, "93.184.216.34": true, "2606:4700::1111": true, "::ffff:1.1.1.1": true,
		"10.1.2.3": false, "172.16.0.1": false, "192.168.0.1": false, "127.0.0.1": false, "169.254.169.254": false, "100.64.0.1": false,
		"0.0.0.0": false, "255.255.255.255": false, "224.0.0.1": false, "198.18.0.1": false, "240.0.0.1": false,
		"::": false, "::1": false, "::ffff:10.0.0.1": false, "fe80::1": false, "fc00::1": false, "ff02::1": false,
		"64:ff9b::a00:1": false, "2002:a00:1::": false, "2001::1": false, "2001:db8::1": false, "::10.0.0.1": false,
	} {
		if got := webhooksender.Public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %v; want %v", text, got, want)
		}
	}
}
