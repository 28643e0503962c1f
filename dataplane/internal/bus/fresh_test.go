package bus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/session"
	"modelgateway/shared/apikey"
	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/natsuser"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

// controlPlane answers the messages of sessions, and has the changes of Postgres.
type controlPlane struct {
	window time.Duration

	mu       sync.Mutex
	away     bool
	sessions wire.SessionID
	revision int64
	changes  []wire.KeyChange
}

var errAway = errors.New("no control plane")

func (c *controlPlane) set(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

func (c *controlPlane) Register(context.Context, *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return nil, errAway
	}
	c.sessions++
	return &wire.RegisterResponse{V: 1, Status: wire.Done, Session: c.sessions, WindowMS: c.window.Milliseconds(), Revision: c.revision}, nil
}

func (c *controlPlane) Heartbeat(_ context.Context, r *wire.HeartbeatRequest) (*wire.HeartbeatResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return nil, errAway
	}
	response := &wire.HeartbeatResponse{V: 1, Status: wire.Done}
	for _, change := range c.changes {
		if change.Revision > r.AppliedRevision {
			response.Changes = append(response.Changes, change)
		}
	}
	return response, nil
}

func (c *controlPlane) CloseSession(context.Context, *wire.CloseRequest) (*wire.CloseResponse, error) {
	return &wire.CloseResponse{V: 1, Status: wire.Done}, nil
}

func (c *controlPlane) SubscribeSession(wire.SessionID) error { return nil }

// applied are the keys whose revocation a proxy has applied in its session.
type applied struct {
	mu   sync.Mutex
	keys []byte
}

func (a *applied) Reset(int64, int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys = nil
}

func (*applied) RequireMAC(bool) {}

func (a *applied) Apply(c wire.KeyChange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys = append(a.keys, c.KeyHash[0])
}

func (a *applied) has(key byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.keys, key)
}

// noUsage is the spool of a proxy without requests.
type noUsage struct{}

func (noUsage) OpenSession(wire.SessionID, string) error               { return nil }
func (noUsage) FinishedSessions(...wire.SessionID) []wire.CloseRequest { return nil }
func (noUsage) MarkClosed(wire.SessionID)                              {}
func (noUsage) Republish()                                             {}
func (noUsage) HoldUsage(bool)                                         {}
func (noUsage) UsedCapacity() int64                                    { return 0 }
func (noUsage) StartedRequests(wire.SessionID) int64                   { return 0 }
func (noUsage) WriteError() error                                      { return nil }
func (noUsage) EarlierSessions() []wire.EarlierSession                 { return nil }
func (noUsage) Checkpoint() *checkpoint.Checkpoint                     { return nil }
func (noUsage) Mark() checkpoint.Mark                                  { return checkpoint.Mark{} }
func (noUsage) SaveCheckpoint(*checkpoint.Checkpoint) error            { return nil }
func (noUsage) RemoveCheckpoint() error                                { return nil }

// freshProxy is a proxy with a session.
type freshProxy struct {
	*session.Keeper
	applied
	t        *testing.T
	registry *prometheus.Registry
}

// startProxy starts a proxy. to are the options that connect it to a server in a bubble, or url is the address of one elsewhere.
func startProxy(t *testing.T, url string, c *controlPlane, to ...nats.Option) *freshProxy {
	t.Helper()
	b, err := Connect(Config{URL: url, Name: "test", Options: append([]nats.Option{
		nats.UserInfo(natsuser.NameOf("test"), natstest.Password), nats.ReconnectWait(10 * time.Millisecond), nats.ReconnectJitter(0, 0),
	}, to...)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	p := &freshProxy{t: t, registry: prometheus.NewRegistry()}
	p.Keeper = session.New(session.Config{Name: "test", Stream: b}, c, &p.applied, noUsage{}, session.Hooks{
		OnSession: func(*session.Session) {}, OnChange: func(wire.KeyChange) {}, State: func() session.Report { return session.Report{} },
	}, slog.New(slog.NewTextHandler(t.Output(), nil)), p.registry)
	p.Start(t.Context())
	t.Cleanup(p.Stop)
	return p
}

func (p *freshProxy) valid() bool {
	s := p.Current()
	return s != nil && s.Valid()
}

// await waits until a condition holds.
func (p *freshProxy) await(what string, holds func() bool) {
	p.t.Helper()
	await.Until(p.t, what, holds)
}

func (p *freshProxy) lapsed() bool { return !p.valid() }

// count returns the value of a metric, the sum over its labels or of the one with
// a label value.
func (p *freshProxy) count(name, label string) (sum float64) {
	p.t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// createChanges creates the stream as a control plane does.
func createChanges(t *testing.T, nc *nats.Conn, replicas int, incarnation string) jetstream.JetStream {
	t.Helper()
	js := natstest.JetStream(t, nc)
	err := natstest.CreateAgain(t.Context(), func() error {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: subject.ChangeStream, Subjects: []string{subject.FromAll(subject.FreshBeat), subject.FromAll(subject.FreshProbe), subject.ChangeAll}, MaxMsgsPerSubject: 1,
			Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, Replicas: replicas, Metadata: map[string]string{subject.IncarnationKey: incarnation},
			RePublish: &jetstream.RePublish{Source: subject.ChangeAll, Destination: subject.ChangedAll},
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func revocation(key byte, revision int64) wire.KeyChange {
	return wire.KeyChange{V: 1, Revision: revision, PreviousRevision: revision - 1, Kind: wire.KeyRevoked, KeyHash: apikey.Hash{key}}
}

// store appends a change to the stream until that is acknowledged.
func store(t *testing.T, js jetstream.JetStream, to string, c wire.KeyChange) {
	t.Helper()
	storeMessage(t, js, to, wire.StreamChange{V: 1, ID: rand.Text(), Change: c})
}

func storeMessage(t *testing.T, js jetstream.JetStream, to string, c wire.StreamChange) {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the stream to store a change", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the acknowledgement may be lost with the leader
		defer cancel()
		_, err := js.Publish(ctx, to, data)
		return err == nil
	})
}

func direct(c wire.KeyChange) string { return subject.ChangeDirect + c.KeyHash.String() }

func TestRevocationReachesAFreshProxyThroughTheStream(t *testing.T) {
	t.Parallel()
	natstest.InBubble(t, revocationThroughTheStream)
}

func revocationThroughTheStream(t *testing.T) {
	server := natstest.NewInBubble(t, natstest.Planes(t, "test"))
	js := createChanges(t, server.Connect(), 1, "a")
	store(t, js, direct(revocation(1, 0)), revocation(1, 0)) // before the proxy starts
	c := &controlPlane{window: 20 * time.Second}
	p := startProxy(t, "", c, nats.InProcessServer(server))
	p.await("a valid session", p.valid)
	if !p.has(1) {
		t.Error("the proxy is fresh without the revocation of an operator that the stream has")
	}
	// The control planes and Postgres end. The proxy stays fresh, and gets changes.
	c.set(func() { c.away = true })
	change := revocation(2, 7)
	store(t, js, change.Subject(), change)
	p.await("the revocation", func() bool { return p.has(2) })
	store(t, js, direct(revocation(3, 0)), revocation(3, 0))
	p.await("the revocation of an operator", func() bool { return p.has(3) })
	read := p.count("mgw_fresh_beats_total", "read")
	time.Sleep(2 * c.window)
	if n := p.count("mgw_fresh_beats_total", "read") - read; n < 7 {
		t.Errorf("%v beats in two windows; want four in each", n)
	}
	if n := p.count("mgw_fresh_lapses_total", ""); n != 0 || !p.valid() {
		t.Errorf("%v lapses, valid: %t; want none", n, p.valid())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.keys); n != 3 {
		t.Errorf("%d changes were applied; want each once", n)
	}
}

func TestProxyThatIsCutOffFromNATSStops(t *testing.T) {
	t.Parallel()
	natstest.InBubble(t, cutOff)
}

func cutOff(t *testing.T) {
	server := natstest.NewInBubble(t, natstest.Planes(t, "test"))
	createChanges(t, server.Connect(), 1, "a")
	const window = 20 * time.Second
	c := &controlPlane{window: window}
	p := startProxy(t, "", c, nats.InProcessServer(server))
	p.await("a valid session", p.valid)
	server.Stop()
	if left := p.count("mgw_session_remaining_seconds", ""); left > window.Seconds() {
		t.Errorf("fresh for %v s more; want at most the window", left)
	}
	p.await("the end of freshness", p.lapsed)
	if err := p.Ready(t.Context()); err == nil || p.Current() == nil {
		t.Errorf("ready: %v; want not ready by a lapse, with the same session", err)
	}
	p.await("the lapse in the metrics", func() bool { return p.count("mgw_fresh_lapses_total", "") == 1 })
	// NATS returns, but without a control plane it is unknown what was missed.
	c.set(func() { c.away = true })
	server.Start()
	read := p.count("mgw_fresh_beats_total", "read")
	time.Sleep(2 * window)
	if n := p.count("mgw_fresh_beats_total", "read") - read; n < 6 || p.valid() {
		t.Errorf("%v beats in two windows, valid: %t; want at least six, and it not fresh after a lapse without the changes of Postgres", n, p.valid())
	}
	c.set(func() { c.away, c.revision, c.changes = false, 8, []wire.KeyChange{revocation(4, 8)} })
	p.await("a valid session", p.valid)
	if !p.has(4) {
		t.Error("the proxy is fresh without the change that Postgres has")
	}
}

// While every control plane is unavailable, a proxy serves as long as it reads its beats in the stream.
func TestSessionOutlivesTheControlPlanes(t *testing.T) {
	t.Parallel()
	natstest.InBubble(t, outlives)
}

func outlives(t *testing.T) {
	server := natstest.NewInBubble(t, natstest.Planes(t, "test"))
	js := createChanges(t, server.Connect(), 1, "a")
	c := &controlPlane{window: 20 * time.Second}
	p := startProxy(t, "", c, nats.InProcessServer(server))
	p.await("a valid session", p.valid)
	c.set(func() { c.away = true })
	first := p.Current()
	time.Sleep(2 * c.window)
	if n := p.count("mgw_fresh_lapses_total", ""); n != 0 || !p.valid() || p.Current() != first {
		t.Errorf("%v lapses, valid: %t, ready: %v; want the same session, which is valid", n, p.valid(), p.Ready(t.Context()))
	}
	if err := p.Ready(t.Context()); err != nil || !p.Alone() {
		t.Errorf("ready: %v, alone: %t; want it ready and alone", err, p.Alone())
	}
	// It ends when the proxy reads so in the stream, and only then.
	other := wire.StreamChange{V: 1, ID: rand.Text(), Ended: first.ID + 100}
	storeMessage(t, js, other.Subject(), other)
	change := revocation(1, 7)
	store(t, js, change.Subject(), change)
	p.await("the revocation behind the end of another session", func() bool { return p.has(1) })
	if p.Current() != first {
		t.Error("the end of another session has ended this one")
	}
	ended := wire.StreamChange{V: 1, ID: rand.Text(), Ended: first.ID}
	storeMessage(t, js, ended.Subject(), ended)
	p.await("the end of the session", func() bool { return p.Current() == nil && !first.Valid() })
	c.set(func() {
		c.away, c.sessions = false, 1000
	})
	p.await("another session", p.valid)
	second := p.Current()
	epoch := wire.StreamChange{V: 1, ID: rand.Text(), Epoch: 2}
	storeMessage(t, js, epoch.Subject(), epoch)
	p.await("the end of the session by the cluster epoch", func() bool { return p.Current() != second && !second.Valid() })
}

// A server loses messages that it has acknowledged, and stores others in their
// places.
func TestProxyNoticesThatTheStreamHasLostMessages(t *testing.T) {
	t.Parallel()
	natstest.InBubble(t, lostMessages)
}

func lostMessages(t *testing.T) {
	server := natstest.NewInBubble(t, natstest.Planes(t, "test"))
	js := createChanges(t, server.Connect(), 1, "a")
	first := revocation(1, 1)
	store(t, js, first.Subject(), first)
	server.Stop()
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(server.Dir())); err != nil {
		t.Fatal(err)
	}
	server.Start()
	c := &controlPlane{window: 20 * time.Second, revision: 1}
	p := startProxy(t, "", c, nats.InProcessServer(server))
	p.await("a valid session", p.valid)
	server.Stop()
	if err := errors.Join(os.RemoveAll(server.Dir()), os.CopyFS(server.Dir(), os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	c.set(func() { c.away = true })
	server.Start()
	for key := range byte(3) { // at the places of beats
		change := revocation(10+key, int64(2+key))
		store(t, js, change.Subject(), change)
	}
	p.await("the loss", p.lapsed)
	p.await("a refused beat", func() bool { return p.count("mgw_fresh_beats_total", "refused") > 0 })
	c.set(func() {
		c.away, c.revision, c.changes = false, 4, []wire.KeyChange{revocation(10, 2), revocation(11, 3), revocation(12, 4)}
	})
	p.await("a valid session", p.valid)
	for key := range byte(3) {
		if !p.has(10 + key) {
			t.Errorf("the proxy is fresh without change %d", key)
		}
	}
}

func TestFreshProxyInACluster(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3, natstest.Planes(t, "test"))
	js := createChanges(t, c.Connect(), 3, "a")
	// The servers of a cluster are connected by TCP, which no fake clock waits for. Nothing here depends on how long
	// something takes, except for the length of the test.
	plane := &controlPlane{window: 4 * time.Second}
	p := startProxy(t, c.URL(), plane)
	p.await("a valid session", p.valid)
	dead := c.StreamLeader(subject.ChangeStream)
	c.Kill(dead)
	change := revocation(1, 7)
	store(t, js, change.Subject(), change)
	p.await("the change", func() bool { return p.has(1) })
	p.await("a valid session", p.valid)
	c.Node(dead).Start()
	p.Stop()

	// A proxy on the smaller side stops, whatever its control plane says.
	alone := c.StreamLeader(subject.ChangeStream)
	lonely := startProxy(t, c.URL(alone), plane)
	lonely.await("a valid session", lonely.valid)
	mend := c.Cut(alone)
	lonely.await("the end of freshness", lonely.lapsed)
	second := revocation(2, 8)
	others := natstest.JetStream(t, c.Connect((alone+1)%3, (alone+2)%3))
	store(t, others, second.Subject(), second)
	if lonely.valid() || lonely.has(2) {
		t.Error("a proxy on the smaller side goes on")
	}
	plane.set(func() { plane.revision, plane.changes = 8, []wire.KeyChange{second} })
	mend()
	lonely.await("a valid session", lonely.valid)
	if !lonely.has(2) {
		t.Error("the proxy is fresh without the change that was made meanwhile")
	}
}
