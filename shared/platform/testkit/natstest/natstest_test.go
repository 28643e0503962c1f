package natstest_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/platform/testkit/natstest"
)

func TestRestartKeepsAddressAndData(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := natstest.New(t)
	url := s.URL()
	back := make(chan struct{}, 1)
	conn := s.Connect(nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}

	s.Restart()

	<-back
	if s.URL() != url {
		t.Errorf("got the address %s after the restart; want %s", s.URL(), url)
	}
	message, err := stream.GetMsg(ctx, 1)
	if err != nil || string(message.Data) != "kept" {
		t.Errorf("got %v, %v; want the message from before the restart", message, err)
	}
}

func TestStoppedServerRefusesConnections(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	s.Stop()
	if conn, err := nats.Connect(s.URL()); err == nil {
		conn.Close()
		t.Error("a stopped server accepted a connection")
	}
	s.Stop()
	s.Start()
	if err := s.Connect().Flush(); err != nil {
		t.Errorf("after Start: %v", err)
	}
}

func TestOptionsAreApplied(t *testing.T) {
	t.Parallel()
	s := natstest.New(t, func(o *server.Options) { o.Username, o.Password = "plane", "secret" })
	if conn, err := nats.Connect(s.URL()); err == nil {
		conn.Close()
		t.Error("connected without the password")
	}
	if err := s.Connect(nats.UserInfo("plane", "secret")).Flush(); err != nil {
		t.Errorf("with the password: %v", err)
	}
}

func TestServersAreSeparate(t *testing.T) {
	t.Parallel()
	if a, b := natstest.New(t), natstest.New(t); a.URL() == b.URL() {
		t.Errorf("two servers share %s", a.URL())
	}
}
