package clientaddr_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"modelgateway/shared/platform/clientaddr"
)

// The client's address is taken from X-Forwarded-For only if a trusted proxy has sent the request.
func TestClientAddressBehindTrustedProxies(t *testing.T) {
	t.Parallel()
	proxies, err := clientaddr.ParseNetworks("10.0.0.0/8, 2001:db8::/32")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, peer, forwarded, want string
		trusted                     []netip.Prefix
	}{
		{"no proxy is trusted", "10.0.0.1:99", "192.0.2.7", "10.0.0.1", nil},
		{"an untrusted peer", "192.0.2.1:99", "192.0.2.7", "192.0.2.1", proxies},
		{"a trusted peer", "10.0.0.1:99", "192.0.2.7", "192.0.2.7", proxies},
		{"a chain of proxies", "10.0.0.1:99", "198.51.100.1, 192.0.2.7, 10.1.1.1", "192.0.2.7", proxies},
		{"an IPv6 proxy", "[2001:db8::1]:99", "192.0.2.7", "192.0.2.7", proxies},
		{"no header", "10.0.0.1:99", "", "10.0.0.1", proxies},
		{"nonsense", "10.0.0.1:99", "nobody", "unknown", proxies},
		{"an address with a port", "10.0.0.1:99", "198.51.100.1, 192.0.2.7:4711", "unknown", proxies},
		{"nonsense before the client's address", "10.0.0.1:99", "nobody, 192.0.2.7", "192.0.2.7", proxies},
		{"nonsense of an untrusted peer", "192.0.2.1:99", "nobody", "192.0.2.1", proxies},
		{"an IPv4 address in IPv6", "[::ffff:192.0.2.1]:99", "", "192.0.2.1", nil},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = tt.peer
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tt.forwarded)
		}
		want, _ := netip.ParseAddr(tt.want)
		if got := clientaddr.Behind(tt.trusted)(r); got != want {
			t.Errorf("%s: got %s; want %s", tt.name, got, tt.want)
		}
	}
}

func TestNetworksAreParsed(t *testing.T) {
	t.Parallel()
	networks, err := clientaddr.ParseNetworks("10.1.2.3/8,fd00::/8")
	if err != nil || len(networks) != 2 || networks[0].String() != "10.0.0.0/8" {
		t.Errorf("got %v, %v", networks, err)
	}
	if _, err := clientaddr.ParseNetworks("10.0.0.1"); err == nil {
		t.Error("an address without a length is a network")
	}
}
