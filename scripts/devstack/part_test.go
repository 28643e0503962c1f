package devstack

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

func TestCleanEnvKeepsSettingsFromThePlanes(t *testing.T) {
	t.Parallel()
	got := cleanEnv([]string{"PATH=/bin", "MGW_CATALOG=x", "MGW_DEV_API_PORT=1", "MGW_LOG_LEVEL=debug", "HOME=/root"})
	if diff := cmp.Diff([]string{"PATH=/bin", "MGW_LOG_LEVEL=debug", "HOME=/root"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBusKeepsItsDataAndAsksForThePassword(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	port := freePort(t)
	url := "nats://" + port.Address()
	for run := range 2 {
		b, err := startBus(l, port, "secret")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.stop)
		if conn, err := nats.Connect(url); err == nil {
			conn.Close()
			t.Error("connected without a password")
		}
		conn, err := nats.Connect(url, nats.UserInfo(busUser, "secret"))
		if err != nil {
			t.Fatal(err)
		}
		js, err := conn.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		if run == 0 {
			if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := js.StreamInfo("S"); err != nil {
			t.Errorf("run %d: %v", run, err)
		}
		conn.Close()
		b.stop()
	}
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) Port {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	return Port{Number: server.Listener.Addr().(*net.TCPAddr).Port}
}

func TestAwaitModel(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		models := []any{map[string]any{"id": "other"}}
		if calls.Add(1) > 2 {
			models = append(models, map[string]any{"id": "wanted"})
		}
		reply(w, map[string]any{"data": models})
	}))
	t.Cleanup(server.Close)
	if err := awaitModel(t.Context(), caller{url: server.URL}, "wanted"); err != nil || calls.Load() != 3 {
		t.Errorf("got %v after %d calls; want nil after 3", err, calls.Load())
	}
}
