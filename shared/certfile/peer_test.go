package certfile

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestPeerKnowsTheExpiryOfTheNewestHandshake(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	peer := &Peer{}
	if at, err := peer.Expiry(); err == nil {
		t.Errorf("expires at %v before a handshake; want an error", at)
	}
	transport := server.Client().Transport.(*http.Transport)
	transport.TLSClientConfig = peer.Watch(transport.TLSClientConfig)
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	at, err := peer.Expiry()
	if err != nil {
		t.Fatal(err)
	}
	if want := server.Certificate().NotAfter; !at.Equal(want) {
		t.Errorf("expires at %v; want %v", at, want)
	}
}
