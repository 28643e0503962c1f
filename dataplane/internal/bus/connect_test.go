package bus

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/scripts/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// TestConnectWithoutServer: a proxy that starts before NATS waits for it, and
// takes in what is pushed from then on.
func TestConnectWithoutServer(t *testing.T) {
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
	if b.Ready(t.Context()) == nil {
		t.Error("ready without a server")
	}
	if _, err := b.Register(t.Context(), &wire.RegisterRequest{}); err == nil {
		t.Error("something was sent without a server")
	}
	server.Start()
	<-connected
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := b.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	far := server.Connect()
	if err := far.Publish(subject.KeyChange, []byte(`{"revision":7}`)); err != nil {
		t.Fatal(err)
	}
	if c := <-changes; c.Revision != 7 {
		t.Errorf("got change %d; want 7", c.Revision)
	}
}

// TestLookForJobsStopsAtOnce: a proxy that stops does not wait for the end of
// its look into an empty queue.
func TestLookForJobsStopsAtOnce(t *testing.T) {
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
	ended := make(chan error, 1)
	go func() {
		_, err := b.NextVideoTask(ctx)
		ended <- err
	}()
	for waiting := 0; waiting == 0; { // until the look has arrived
		info, err := consumer.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiting = info.NumWaiting
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("a job out of nothing")
	}
}
