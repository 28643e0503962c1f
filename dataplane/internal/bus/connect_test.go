package bus

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// A proxy that starts before NATS connects later, and then receives pushed
// messages.
func TestConnectBeforeServerStarts(t *testing.T) {
	t.Parallel()
	server := natstest.New(t)
	url := server.URL()
	server.Stop()
	connected := make(chan bool, 1)
	b, err := Connect(Config{URL: url, Name: "early", Options: []nats.Option{
		nats.ConnectHandler(func(*nats.Conn) { connected <- true }),
	}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	changes := make(chan wire.KeyChange, 1)
	err = b.Subscribe(Handlers{
		KeyChange: func(c wire.KeyChange, _ func(wire.Ack)) { changes <- c },
		Reserved:  func(wire.ReservedRequest) (wire.ReservedResponse, bool) { return wire.ReservedResponse{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Register(t.Context(), &wire.RegisterRequest{}); err == nil {
		t.Error("Register succeeded without a server")
	}
	server.Start()
	<-connected
	natstest.Flush(t, b.nc)
	remote := server.Connect()
	if err := remote.Publish(subject.KeyChange, []byte(`{"revision":7}`)); err != nil {
		t.Fatal(err)
	}
	if c := <-changes; c.Revision != 7 {
		t.Errorf("got a change of revision %d; want 7", c.Revision)
	}
}

// A proxy that stops does not wait until its fetch from the empty work queue times
// out.
func TestNextVideoTaskStopsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Bus.fetchTimeout = time.Hour
	stream, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: subject.VideoPollStream, Subjects: []string{subject.VideoPollAll}, Retention: jetstream.WorkQueuePolicy})
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: subject.VideoPollConsumer, AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := b.NextVideoTask(ctx)
		result <- err
	}()
	await.Until(t, "the fetch to reach the server", func() bool {
		info, err := consumer.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.NumWaiting > 0
	})
	stop()
	if err := <-result; err == nil {
		t.Error("got a task from an empty queue")
	}
}
