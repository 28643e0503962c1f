package natstest

import (
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
)

// PrepareBubbles starts a goroutine of NATS outside of the bubbles of testing/synctest,
// because inside of one it would stop the fake clock. TestMain calls it once before
// NewInBubble.
func PrepareBubbles() { ats.Register() }

// A BubbleServer is a NATS server in a bubble of testing/synctest. It does not listen,
// because a TCP connection would keep the fake clock from moving.
type BubbleServer struct{ server *server.Server }

// NewInBubble starts a server in the bubble of the caller. The test must close all
// connections and stop the server before the bubble ends. Only one bubble of a process
// can have a server, because the client shares timers between bubbles.
func NewInBubble(t testing.TB) *BubbleServer {
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
	return &BubbleServer{running}
}

// Connection returns the option that connects a client to the server, without regard to
// the client's URL.
func (b *BubbleServer) Connection() nats.Option { return nats.InProcessServer(b.server) }

// Stop stops the server and waits until it has ended.
func (b *BubbleServer) Stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// A BubbleLink connects a client to a BubbleServer until it is cut.
type BubbleLink struct {
	server *server.Server

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// NewLink returns a link to the server.
func (b *BubbleServer) NewLink() *BubbleLink { return &BubbleLink{server: b.server} }

// Connection returns the option that connects a client through the link, without regard to the client's URL.
func (l *BubbleLink) Connection() nats.Option { return nats.InProcessServer(l) }

// InProcessConn implements nats.InProcessConnProvider.
func (l *BubbleLink) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return nil, errors.New("natstest: the link is cut")
	}
	conn, err := l.server.InProcessConn()
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

// Cut closes the connections of the link and refuses new ones until Mend.
func (l *BubbleLink) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for _, conn := range l.conns {
		_ = conn.Close() // the client may have closed it
	}
	l.conns = nil
}

// Mend lets the client connect again.
func (l *BubbleLink) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}
