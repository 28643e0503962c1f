// Package natstest starts NATS servers for tests: in the process of the test, with
// JetStream, on a free port of the loopback interface.
//
// A server has no streams or buckets; the code under test creates them. It keeps its port
// and its data over Stop and Start, so that a test can simulate an outage.
package natstest

import (
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startLimit bounds a start, which usually takes 50 ms.
const startLimit = 30 * time.Second

// A Server is the NATS server of one test. Its methods may be called concurrently.
type Server struct {
	t testing.TB

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
	s := &Server{t: t, options: server.Options{
		ServerName: "natstest",
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   t.TempDir(),
		NoLog:      true,
		NoSigs:     true,
	}}
	for _, f := range modify {
		f(&s.options)
	}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

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
	return connect(s.t, s.URL(), options...)
}

func connect(t testing.TB, urls string, options ...nats.Option) *nats.Conn {
	t.Helper()
	all := append([]nats.Option{
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

// Start starts a stopped server on the same port with the same data.
func (s *Server) Start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		s.t.Fatal("natstest: the server is already running")
	}
	options := s.options // a copy, because the server writes to its options
	running, err := server.NewServer(&options)
	if err != nil {
		s.t.Fatalf("natstest: %v", err)
	}
	running.Start()
	if !running.ReadyForConnections(startLimit) {
		running.Shutdown()
		s.t.Fatal("natstest: the server does not start")
	}
	s.options.Port = running.Addr().(*net.TCPAddr).Port
	if address := running.ClusterAddr(); address != nil {
		s.options.Cluster.Port = address.Port
	}
	s.running = running
}

// Stop stops the server, which closes its connections. Stopping a stopped server has no
// effect.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return
	}
	s.running.Shutdown()
	s.running.WaitForShutdown()
	s.running = nil
}

// Restart calls Stop and Start.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Start()
}
