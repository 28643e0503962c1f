package devstack

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"modelgateway/shared/subject"
)

func TestCleanEnvRemovesVariablesOfTheStack(t *testing.T) {
	t.Parallel()
	got := cleanEnv([]string{"PATH=/bin", "MGW_CATALOG=x", "MGW_DEV_API_PORT=1", "HOME=/root"})
	if diff := cmp.Diff([]string{"PATH=/bin", "HOME=/root"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// connect connects to the bus.
func connect(t *testing.T, url, user, password string) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, nats.UserInfo(user, password))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func TestBusKeepsItsDataAndRequiresThePassword(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	port := freePorts(t).NATS
	url := "nats://" + port.Address()
	for run := range 2 {
		b, err := startBus(l, port, map[string]string{controlUser: "secret", dataUser: "other", operatorUser: "third"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.stop)
		if conn, err := nats.Connect(url); err == nil {
			conn.Close()
			t.Error("connected without a password")
		}
		js, err := connect(t, url, operatorUser, "third").JetStream()
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
		b.stop()
	}
}

func TestPlanesAreHeldToTheirPermissions(t *testing.T) {
	t.Parallel()
	port := freePorts(t).NATS
	b, err := startBus(newLayout(t), port, map[string]string{controlUser: "secret", dataUser: "other", operatorUser: "third"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.stop)
	for user, forbidden := range map[string]string{dataUser: subject.KeyChange, controlUser: subject.Usage("proxy", 1)} {
		violations := make(chan error, 1)
		conn, err := nats.Connect("nats://"+port.Address(), nats.UserInfo(user, map[string]string{dataUser: "other", controlUser: "secret"}[user]),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		if err := conn.Publish(forbidden, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-violations; !strings.Contains(err.Error(), forbidden) {
			t.Errorf("%s publishes to %s: got %v; want a permissions violation", user, forbidden, err)
		}
	}
}

func TestAwaitModelWaitsUntilTheModelIsListed(t *testing.T) {
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
