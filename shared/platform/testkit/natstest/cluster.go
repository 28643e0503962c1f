package natstest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"modelgateway/shared/platform/testkit/await"
)

// A Cluster is a number of NATS servers that replicate streams. The connections between them pass through links, which a test
// can cut.
type Cluster struct {
	t     testing.TB
	nodes []*Server
	// links has the link from the server with the first index to that with the second one; nil from a server to itself.
	links [][]*link
}

// NewCluster starts n servers, which are stopped when the test ends, and waits until they have a leader. Each modify may change
// the options of each server first.
func NewCluster(t testing.TB, n int, modify ...func(*server.Options)) *Cluster {
	t.Helper()
	c := &Cluster{t: t, links: make([][]*link, n)}
	for to := range n {
		c.nodes = append(c.nodes, &Server{t: t, options: server.Options{
			ServerName:  fmt.Sprintf("natstest-%d", to),
			Host:        "127.0.0.1",
			Port:        server.RANDOM_PORT,
			JetStream:   true,
			StoreDir:    t.TempDir(),
			NoLog:       true,
			NoSigs:      true,
			AuthTimeout: authTimeout,
			Cluster: server.ClusterOpts{
				Name: "natstest",
				Host: "127.0.0.1",
				Port: server.RANDOM_PORT,
				// Servers tell each other their addresses. Nobody listens here, so that there are no connections besides the links.
				Advertise: "127.0.0.1:1",
				// The addresses of clients are those that a test gives them.
				NoAdvertise: true,
			},
		}})
	}

	for from, s := range c.nodes {
		c.links[from] = make([]*link, n)
		for to, target := range c.nodes {
			if from == to {
				continue
			}
			c.links[from][to] = newLink(t, target.clusterAddress)
			s.options.Routes = append(s.options.Routes, &url.URL{Scheme: "nats-route", Host: c.links[from][to].address()})
		}
		for _, f := range modify {
			f(&s.options)
		}
	}

	for _, s := range c.nodes {
		s.Start()
		t.Cleanup(s.Stop)
	}

	c.awaitLeader()
	return c
}

// clusterAddress returns the address for other servers of the cluster; empty while the server is stopped.
func (s *Server) clusterAddress() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil || s.running.ClusterAddr() == nil {
		return ""
	}
	return s.running.ClusterAddr().String()
}

// Node returns a server. After Stop, it starts with its data and on its port.
func (c *Cluster) Node(i int) *Server { return c.nodes[i] }

// Len returns the number of servers.
func (c *Cluster) Len() int { return len(c.nodes) }

// URL returns the URLs of all servers, or of those with the given indexes, separated by commas.
func (c *Cluster) URL(nodes ...int) string {
	var urls []string
	for i, s := range c.nodes {
		if len(nodes) == 0 || slices.Contains(nodes, i) {
			urls = append(urls, s.URL())
		}
	}
	return strings.Join(urls, ",")
}

// Connect returns a connection to any of the servers, or of those with the given indexes, that is closed when the test ends. It
// reconnects to another one.
func (c *Cluster) Connect(nodes ...int) *nats.Conn {
	c.t.Helper()
	return connect(c.t, c.URL(nodes...))
}

// Cut drops everything between two groups of servers: those with the given indexes and the rest. Mend or the end of the test
// restores the connections. The clients of each server stay connected.
func (c *Cluster) Cut(nodes ...int) (mend func()) {
	c.t.Helper()
	var cut []*link
	for from := range c.nodes {
		for to := range c.nodes {
			if slices.Contains(nodes, from) != slices.Contains(nodes, to) {
				cut = append(cut, c.links[from][to])
			}
		}
	}

	for _, l := range cut {
		l.cut()
	}

	mend = sync.OnceFunc(func() {
		for _, l := range cut {
			l.mend()
		}
	})
	c.t.Cleanup(mend)

	return mend
}

// Kill ends a server without a farewell: it cannot hand over what it leads. Start starts it again with its data.
func (c *Cluster) Kill(i int) {
	mend := c.Cut(i)
	c.nodes[i].Stop()
	mend()
}

// awaitLeader waits until a server leads all others, which is necessary to create streams.
func (c *Cluster) awaitLeader() {
	c.t.Helper()
	c.await("a leader of all", func(s *server.Server) bool {
		return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(c.nodes)
	})
}

// StreamLeader waits until a running server leads a stream of clients without an account, and returns its index.
func (c *Cluster) StreamLeader(stream string) int {
	c.t.Helper()
	return c.await(
		"a leader of "+stream,
		func(s *server.Server) bool { return s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) },
	)
}

// await waits until the condition holds for one of the running servers, and returns its index.
func (c *Cluster) await(what string, is func(*server.Server) bool) (found int) {
	c.t.Helper()
	await.Until(c.t, what, func() bool {
		found = slices.IndexFunc(c.nodes, func(s *Server) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.running != nil && is(s.running)
		})
		return found >= 0
	})
	return found
}

// Clients returns the names of the clients that are connected to a server; none while it is stopped.
func (s *Server) Clients() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil
	}
	connections, err := s.running.Connz(nil)
	if err != nil {
		s.t.Errorf("natstest: %v", err)
		return nil
	}
	var names []string
	for _, c := range connections.Conns {
		names = append(names, c.Name)
	}
	return names
}
