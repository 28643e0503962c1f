package natstest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"

	"modelgateway/shared/platform/testkit/await"
)

// bubbleVariable has the name of the test that a process runs in a bubble.
const bubbleVariable = "MGW_TEST_BUBBLE"

// InBubble runs a test in a bubble of testing/synctest, in which NewInBubble starts servers, and in a process of its own: only
// one bubble of a process can have NATS, because the client shares timers between bubbles. The name of the test must be the
// same in each run.
func InBubble(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	if os.Getenv(bubbleVariable) == t.Name() {
		// This starts a goroutine of NATS outside of the bubble. Inside of one it would stop the fake clock.
		ats.Register()
		defer ats.Unregister()
		synctest.Test(t, run)
		return
	}

	var pattern []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}

	cmd := exec.CommandContext(
		t.Context(),
		os.Args[0],
		"-test.v",
		"-test.count=1",
		"-test.timeout="+await.Left(t).String(),
		"-test.run="+strings.Join(pattern, "/"),
	)
	cmd.Env = append(os.Environ(), bubbleVariable+"="+t.Name())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("the process of the bubble ended with %v, and has not passed", err)
	}
}

// NewInBubble starts a server in the bubble of the caller. It does not listen, because a TCP connection would keep the fake
// clock from moving.
func NewInBubble(t testing.TB, modify ...func(*server.Options)) *Server {
	t.Helper()
	return start(t, server.Options{ServerName: "bubble", DontListen: true}, modify)
}

// A BubbleLink connects a client to a server in a bubble until it is cut.
type BubbleLink struct {
	server *Server

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// NewLink returns a link to a server in a bubble.
func (s *Server) NewLink() *BubbleLink { return &BubbleLink{server: s} }

// Connection returns the option that connects a client through the link, without regard to the client's URL.
func (l *BubbleLink) Connection() nats.Option { return nats.InProcessServer(l) }

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
