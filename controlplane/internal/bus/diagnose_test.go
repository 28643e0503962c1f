package bus_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/diagnosis"
	"modelgateway/controlplane/internal/postgres/leasestore"
	"modelgateway/shared/natsuser"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

func diagnose(t *testing.T, b *bus.Bus) diagnosis.NATS {
	t.Helper()
	facts, err := b.Diagnose(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

func TestDiagnoseFindsChangedStreamsAndLag(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connectReplica(leasestore.NewRecovery(p.db))
	p.appender(b, time.Second)
	p.writeKeys(p.keyWriter(b))
	js := natstest.JetStream(t, p.server.Connect())
	facts := diagnose(t, b)
	want := []diagnosis.Stream{
		{Name: subject.UsageStream, Replicas: 1, Wanted: 1, Consumer: subject.UsageConsumer, Usage: true},
		{Name: subject.VideoPollStream, Replicas: 1, Wanted: 1, Consumer: subject.VideoPollConsumer},
		{Name: subject.VideoJobStream, Replicas: 1, Wanted: 1},
		{Name: "KV_" + subject.CatalogBucket, Replicas: 1, Wanted: 1},
		{Name: subject.ChangeStream, Replicas: 1, Wanted: 1},
		{Name: subject.KeyStream, Replicas: 1, Wanted: 1},
	}
	if diff := cmp.Diff(want, facts.Streams, cmpopts.IgnoreFields(diagnosis.Stream{}, "Bytes")); diff != "" || facts.Version == "" || facts.Syncs != nil {
		t.Errorf("streams as declared (-want +got):\n%s", diff)
	}
	if facts.Skew.Abs() > facts.Uncertainty+time.Second { // the server uses this machine's clock
		t.Errorf("clock skew: %v with an error of up to %v", facts.Skew, facts.Uncertainty)
	}

	// A stream is changed, a consumer and a bucket are deleted, and one event is not settled.
	before := time.Now()
	p.publish(p.usage(1))
	stream, err := js.Stream(t.Context(), subject.UsageStream)
	if err != nil {
		t.Fatal(err)
	}
	changed := stream.CachedInfo().Config
	changed.MaxAge, changed.MaxBytes = time.Hour, 1<<20
	if _, err := js.UpdateStream(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteConsumer(t.Context(), subject.VideoPollStream, subject.VideoPollConsumer); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(t.Context(), subject.CatalogBucket); err != nil {
		t.Fatal(err)
	}
	got := diagnose(t, b).Streams
	if oldest := got[0].Oldest; got[0].Waiting != 1 || oldest.Before(before.Add(-time.Second)) || oldest.After(time.Now().Add(time.Second)) {
		t.Errorf("waiting and oldest message: %+v", got[0])
	}
	if diff := cmp.Diff([]string{"max_age is 1h0m0s instead of 168h0m0s", "max_bytes is 1048576 instead of 0"}, got[0].Differences); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if !got[1].ConsumerMissing || !got[3].Missing {
		t.Errorf("deleted consumer and bucket are not reported as missing: %+v", got[1:])
	}
}

func TestDiagnoseComparesThePermissionsOfTheUser(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	p.connectReplica(leasestore.NewRecovery(p.db)) // declares the streams
	connect := func(user string) *diagnosis.NATSPermissions {
		t.Helper()
		b, err := bus.Connect(bus.Config{URL: p.server.URL(), User: user, Password: natstest.Password}, leasestore.NewRecovery(p.db), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var found *diagnosis.NATSPermissions
		await.Until(t, "the permissions, for which a diagnosis waits a second", func() bool {
			found = diagnose(t, b).Permissions
			return found != nil
		})
		return found
	}
	want := &diagnosis.NATSPermissions{User: natsuser.ControlPlane}
	if diff := cmp.Diff(want, connect(natsuser.ControlPlane)); diff != "" {
		t.Errorf("the control plane's own user (-want +got):\n%s", diff)
	}
	want = &diagnosis.NATSPermissions{User: "all", Extra: []string{"publish >", "subscribe >"}}
	if diff := cmp.Diff(want, connect("all")); diff != "" {
		t.Errorf("a user that may do everything (-want +got):\n%s", diff)
	}
}

func TestDescribeReturnsTheResponsesReceivedInTime(t *testing.T) {
	t.Parallel()
	p := newEnv(t)
	b := p.connectReplica(leasestore.NewRecovery(p.db))
	all := p.server.Connect()
	_, err := all.Subscribe(subject.Describe, func(m *nats.Msg) {
		for _, name := range []string{"one", "two"} {
			text, err := json.Marshal(wire.DescribeResponse{V: 1, Name: name, ClockMS: time.Now().Add(time.Hour).UnixMilli(), FleetKey: "f"})
			if err != nil {
				t.Error(err)
			}
			to, _ := subject.Answer(m.Reply, name)
			_ = all.Publish(to, text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, all)
	described, err := b.Describe(t.Context(), 2)
	if err != nil || len(described) != 2 || described[0].FleetKey != "f" {
		t.Fatalf("got %+v, %v", described, err)
	}
	if off := described[0].Skew - time.Hour; off.Abs() > described[0].Uncertainty+time.Second {
		t.Errorf("clock skew: %v with an error of up to %v", described[0].Skew, described[0].Uncertainty)
	}
	// If a proxy does not answer, Describe returns the other responses when its context ends.
	// until the two answers arrive in time
	for limit := 100 * time.Millisecond; len(described) != 2 || err != nil || limit == 100*time.Millisecond; limit *= 2 {
		if limit > await.Left(t) {
			t.Fatalf("got %+v, %v; want the two that answer", described, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		described, err = b.Describe(ctx, 3)
		cancel()
	}
}

// The setting comes from the monitoring ports of real servers. Ports that do not tell are named.
func TestDiagnoseReadsFromMonitoringPortsWhetherServersSync(t *testing.T) {
	t.Parallel()
	monitor := func(sync bool) string {
		s := natstest.New(t, func(o *server.Options) { o.HTTPHost, o.HTTPPort, o.SyncAlways = "127.0.0.1", server.RANDOM_PORT, sync })
		return s.MonitorURL()
	}
	p := newEnv(t)
	syncing, lazy := monitor(true), monitor(false)
	silent := httptest.NewServer(http.NotFoundHandler())
	defer silent.Close()
	tests := []struct {
		name, urls string
		want       map[bool]int
		fault      bool
	}{
		{"a server that syncs, by two addresses", syncing + "," + syncing + "/", map[bool]int{true: 1}, false},
		{"a server that does not", lazy, map[bool]int{false: 1}, false},
		{"both", syncing + ", " + lazy, map[bool]int{false: 1, true: 1}, false},
		{"a port that does not tell", silent.URL + "," + syncing, map[bool]int{true: 1}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, err := bus.Connect(bus.Config{URL: p.server.URL(), MonitorURL: tt.urls}, leasestore.NewRecovery(p.db), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			facts := diagnose(t, b)
			got := map[bool]int{}
			for _, always := range facts.Syncs {
				got[always]++
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || (facts.SyncError != "") != tt.fault {
				t.Errorf("servers by whether they sync (-want +got):\n%s\nand the fault %q", diff, facts.SyncError)
			}
		})
	}
}
