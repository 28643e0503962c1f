// Package natstest starts NATS servers for tests: in the process of the test, with
// JetStream, on a free port of the loopback interface.
//
// A server has no streams or buckets; the code under test creates them. It keeps its port
// and its data over Stop and Start, so that a test can simulate an outage.
package natstest

import (
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/platform/testkit/await"
)

// A Server is the NATS server of one test. Its methods may be called concurrently.
type Server struct {
	t testing.TB

	// starting serialises Start and Stop. It is not held while a client connects, whose wait for a lock would stop the clock
	// of a bubble in which the server stops.
	starting sync.Mutex

	mu sync.Mutex
	// options are used by the next start.
	options server.Options
	// running is nil while stopped.
	running *server.Server
}

// New starts a server that is stopped when the test ends. Each modify may change the
// options first, for users or limits; by default there is no password.
func New(t testing.TB, modify ...func(*server.Options)) *Server {
	t.Helper()
	return start(t, server.Options{ServerName: "natstest", Host: "127.0.0.1", Port: server.RANDOM_PORT}, modify)
}

func start(t testing.TB, options server.Options, modify []func(*server.Options)) *Server {
	t.Helper()
	options.JetStream, options.StoreDir, options.NoLog, options.NoSigs = true, t.TempDir(), true, true
	options.AuthTimeout = authTimeout
	s := &Server{t: t, options: options}
	for _, f := range modify {
		f(&s.options)
	}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

// authTimeout is how many seconds a client has to say who it is. The server's default of two is short beside other load.
const authTimeout = 600

// TLS lets a server accept connections with TLS only.
func TLS(config *tls.Config) func(*server.Options) {
	return func(o *server.Options) { o.TLS, o.TLSConfig = true, config }
}

// URL returns the URL for clients. It does not change.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "nats://" + net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))
}

// Dir returns the directory of the server's data, which a test may change while the server is stopped.
func (s *Server) Dir() string { return s.options.StoreDir }

// MonitorURL returns the URL of the monitoring port, which the options must open. It changes with a restart if they choose a
// random port.
func (s *Server) MonitorURL() string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil || s.running.MonitorAddr() == nil {
		s.t.Fatal("natstest: there is no monitoring port")
	}
	return "http://" + s.running.MonitorAddr().String()
}

// Connect returns a connection that is closed when the test ends. After a Restart it
// reconnects immediately, without a limit of attempts. options override these settings.
func (s *Server) Connect(options ...nats.Option) *nats.Conn {
	s.t.Helper()
	if s.options.DontListen {
		return connect(s.t, "", append([]nats.Option{nats.InProcessServer(s)}, options...)...)
	}
	return connect(s.t, s.URL(), options...)
}

// InProcessConn implements nats.InProcessConnProvider: a connection without a network.
func (s *Server) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil, errors.New("natstest: the server is stopped")
	}
	return s.running.InProcessConn()
}

func connect(t testing.TB, urls string, options ...nats.Option) *nats.Conn {
	t.Helper()
	all := append([]nats.Option{
		nats.Timeout(await.Left(t)),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(5 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
	}, options...)
	conn, err := nats.Connect(urls, all...)
	if err != nil {
		t.Fatalf("natstest: connect: %v", err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// JetStream returns a client of JetStream whose requests wait as long as the test run lasts, instead of five seconds.
func JetStream(t testing.TB, conn *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(await.Left(t)))
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	return js
}

// Flush waits until the server has handled everything that the connections have sent, and they have received everything that it
// had sent before.
func Flush(t testing.TB, conns ...*nats.Conn) {
	t.Helper()
	for _, conn := range conns {
		if err := conn.FlushTimeout(await.Left(t)); err != nil {
			t.Fatalf("natstest: flush: %v", err)
		}
	}
}

// Start starts a stopped server on the same port with the same data.
func (s *Server) Start() {
	s.t.Helper()
	s.starting.Lock()
	defer s.starting.Unlock()
	s.mu.Lock()
	options, isRunning := s.options, s.running != nil // a copy, because the server writes to its options
	s.mu.Unlock()
	if isRunning {
		s.t.Fatal("natstest: the server is already running")
	}

	running, err := server.NewServer(&options)
	if err != nil {
		s.t.Fatalf("natstest: %v", err)
	}

	running.Start()
	if !running.ReadyForConnections(await.Left(s.t)) {
		running.Shutdown()
		s.t.Fatal("natstest: the server does not start")
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if !options.DontListen {
		s.options.Port = running.Addr().(*net.TCPAddr).Port
	}
	if address := running.ClusterAddr(); address != nil {
		s.options.Cluster.Port = address.Port
	}

	s.running = running
}

// Stop stops the server, which closes its connections. Stopping a stopped server has no
// effect.
func (s *Server) Stop() {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.mu.Lock()
	running := s.running
	s.running = nil
	s.mu.Unlock()
	if running != nil {
		running.Shutdown()
		running.WaitForShutdown()
	}
}

// Restart calls Stop and Start.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Start()
}
