package natstest

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
)

// OutsideBubbles prepares for InBubble. It is called once, in TestMain: what
// it starts would freeze the fake time of a bubble that it were started in.
func OutsideBubbles() { ats.Register() }

// A Bubbled is a NATS server in a bubble of testing/synctest, where it does
// not listen: a connection of TCP would keep the fake time from moving.
type Bubbled struct{ server *server.Server }

// InBubble starts a server in the bubble that it is called in. Stop it, and
// close all its connections, before the bubble ends. One bubble of a process
// can have one: the client shares timers between them.
func InBubble(t testing.TB) *Bubbled {
	t.Helper()
	running, err := server.NewServer(&server.Options{
		ServerName: "bubble", DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	running.Start()
	if !running.ReadyForConnections(startLimit) {
		running.Shutdown()
		t.Fatal("natstest: the server does not start")
	}
	return &Bubbled{running}
}

// Here is the option that leads a connection to the server, whatever its URL.
func (b *Bubbled) Here() nats.Option { return nats.InProcessServer(b.server) }

// Stop ends the server.
func (b *Bubbled) Stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}
