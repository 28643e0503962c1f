package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/bus"
	"modelgateway/dataplane/internal/session"
	"modelgateway/dataplane/internal/spool"
	"modelgateway/dataplane/internal/tail"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/checkpoint"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/money"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
	"modelgateway/shared/wire/checkwire"
)

// The outages.
const (
	controlPlanesAway = "every control plane is away"
	postgresAway      = "Postgres is away"
	natsAway          = "NATS is away"
	proxyCutOff       = "the proxy is cut off from NATS"
)

// Control planes, Postgres or NATS are unavailable for four hours, or the proxy is cut off, while it runs. As long as it reads the stream of
// changes, requests are admitted from granted units, and no request is admitted when the window has passed without that. At the end all usage is settled exactly once and no units are outstanding.
//
// The clock is fake, the components of the proxy and NATS are real.
func TestOutagesOfHours(t *testing.T) {
	t.Parallel()
	for _, outage := range []string{controlPlanesAway, postgresAway, natsAway, proxyCutOff} {
		t.Run(outage, func(t *testing.T) {
			t.Parallel()
			natstest.InBubble(t, func(t *testing.T) { runOutage(t, outage, hours) })
		})
	}
}

const (
	// settleTime is how long the control plane runs before and after the outage.
	settleTime = 2 * time.Minute
	// A request starts at each interval. Every hundredth is a long one, close to the maximum.
	requestInterval, requestDuration, longRequest = time.Second, 3 * time.Second, 9 * time.Minute
	// estimate is the reservation of a request, cost its charge.
	estimate, cost money.Nano = 1000, 400
	// window is that of sessions.
	window = 20 * time.Second
	// outageTarget is for how long idle units are to serve.
	outageTarget = 4 * time.Hour
)

func runOutage(t *testing.T, outage string, length time.Duration) {
	server := natstest.NewInBubble(t)
	plane := newControlPlane(t, server)
	plane.up(t)
	defer plane.down()
	link := server.NewLink()
	proxy := newProxy(t, link)
	defer proxy.stop(t)

	stop := proxy.startRequests(t)
	time.Sleep(settleTime)
	running := proxy.admitted()
	end := begin(t, outage, plane, link)
	stopped := time.Now()
	time.Sleep(length)
	during := proxy.admitted() - running
	last := proxy.last().Sub(stopped)
	hasStream := outage == controlPlanesAway || outage == postgresAway
	switch {
	case hasStream && during < int(length/requestInterval)*9/10:
		t.Errorf("%d requests were admitted during the outage, the last after %s; want all", during, last)
	case !hasStream && last > window:
		t.Errorf("a request was admitted %s after the proxy was cut off from the stream; want none after %s", last, window)
	}
	end()
	time.Sleep(settleTime)
	stop()
	time.Sleep(longRequest + settleTime) // until the running requests have ended and are settled
	if after := proxy.admitted() - running - during; after < int(settleTime/requestInterval)/2 {
		t.Errorf("%d requests were admitted afterwards; want as many as before", after)
	}
	plane.check(t, proxy)
	t.Logf("%s: %d requests before, %d during the outage, the last after %s, %d in all; %d messages on the stream",
		outage, running, during, last.Round(time.Second), proxy.admitted(), plane.delivered)
}

// begin begins an outage. The returned function ends it.
func begin(t *testing.T, outage string, plane *controlPlane, link *natstest.BubbleLink) (end func()) {
	t.Helper()
	switch outage {
	case controlPlanesAway:
		plane.down()
		return func() { plane.up(t) }
	case postgresAway:
		plane.setPostgres(false)
		return func() { plane.setPostgres(true) }
	case natsAway:
		plane.down()
		link.Cut()
		return func() { link.Mend(); plane.up(t) }
	case proxyCutOff:
		link.Cut()
		return link.Mend
	}
	t.Fatalf("unknown outage %q", outage)
	return nil
}

// proxy is a data plane without its HTTP side.
type proxy struct {
	spool     *spool.Spool
	nats      *bus.Bus
	keeper    *session.Keeper
	admit     *admission.Admission
	publisher *spool.Publisher
	key       *auth.Key
	requests  sync.WaitGroup

	mu sync.Mutex
	// finished holds the cost of every admitted request, latest is when the last one was admitted.
	finished map[string]money.Nano
	latest   time.Time
}

// anyKey accepts every key.
type anyKey struct{}

func (anyKey) Valid(*auth.Key) bool                                    { return true }
func (anyKey) Renew(_ context.Context, k *auth.Key) (*auth.Key, error) { return k, nil }
func (anyKey) Reset(int64, int64)                                      {}
func (anyKey) RequireMAC(bool)                                         {}
func (anyKey) Apply(wire.KeyChange)                                    {}

func newProxy(t *testing.T, link *natstest.BubbleLink) *proxy {
	t.Helper()
	log, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	p := &proxy{finished: map[string]money.Nano{}, key: &auth.Key{KeyRecord: wire.KeyRecord{
		KeyID: ident.Key.New(), AccountID: ident.Account.New(), Active: true, BalancePool: balancePool, SlotsPool: slotsPool,
	}}}
	var err error
	if p.spool, err = spool.Open(spool.Config{Dir: t.TempDir(), MaxEvents: 20_000, MaxBytes: 64 << 20}, log); err != nil {
		t.Fatal(err)
	}
	if p.nats, err = bus.Connect(bus.Config{Name: "proxy", Options: []nats.Option{link.Connection()}}, log); err != nil {
		t.Fatal(err)
	}
	p.keeper = session.New(session.Config{Name: "proxy", Capacity: p.spool.Capacity(), Stream: p.nats}, p.nats, anyKey{}, p.spool, session.Hooks{
		OnSession: func(s *session.Session) { p.admit.OnSession(s) },
		OnResume:  func(s *session.Session, idle map[string][]checkpoint.IdleUnits) { p.admit.OnResume(s, idle) },
		Idle:      func() map[string][]checkpoint.IdleUnits { return p.admit.IdleUnits() },
		OnChange:  func(wire.KeyChange) {},
		State:     func() session.Report { return session.Report{Running: p.admit.Running()} },
	}, log, reg)
	p.admit = admission.New(p.keeper, anyKey{}, spoolCapacity{p.spool}, p.nats, admission.Units{IdleTimeout: 10 * time.Second, OutageTarget: outageTarget}, admission.NewMetrics(reg), log)
	p.publisher = spool.NewPublisher(p.spool, p.nats, log, reg)
	if err := subscribe(p.nats, p.spool, p.keeper, p.admit, tail.New(), func(*wire.ExplainRequest) wire.ExplainResponse { return wire.ExplainResponse{} }, func(*checkwire.Request) checkwire.Response { return checkwire.Response{} }, func() wire.DescribeResponse { return wire.DescribeResponse{} }); err != nil {
		t.Fatal(err)
	}
	p.publisher.Start(t.Context())
	p.keeper.Start(t.Context())
	return p
}

func (p *proxy) stop(t *testing.T) {
	t.Helper()
	p.requests.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p.admit.Stop(ctx)
	p.keeper.Stop()
	if err := p.keeper.Leave(ctx); err != nil {
		t.Errorf("close session: %v", err)
	}
	p.publisher.Stop()
	p.nats.Close()
	if err := p.spool.Close(); err != nil {
		t.Error(err)
	}
}

// startRequests starts requests at regular intervals until stop is called.
func (p *proxy) startRequests(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p.requests.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			d := requestDuration
			if n%100 == 0 {
				d = longRequest
			}
			p.requests.Go(func() { p.request(ctx, t, d) })
			time.Sleep(requestInterval)
		}
	})
	return cancel
}

func (p *proxy) request(ctx context.Context, t *testing.T, takes time.Duration) {
	e := event.Usage{
		V: event.Version, RequestID: ident.Request.New(), AccountID: p.key.AccountID, KeyID: p.key.KeyID, Model: "model", Format: "chat",
	}
	reservation, err := p.admit.Acquire(ctx, admission.Request{Key: p.key, ExpectedCost: estimate, Slot: true, Event: e})
	if err == nil {
		err = reservation.Start()
	}
	if err != nil {
		if !errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("got %v; want ErrUnavailable or no error", err)
		}
		return
	}
	p.mu.Lock()
	p.finished[e.RequestID], p.latest = cost, time.Now()
	p.mu.Unlock()
	time.Sleep(takes)
	reservation.Finish(func(e *event.Usage) {
		e.Status, e.Cost, e.Rule, e.FinishedMS = event.Completed, cost, event.RuleReported, time.Now().UnixMilli()
	})
}

func (p *proxy) admitted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.finished)
}

func (p *proxy) last() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

// The pools of the only account.
const (
	balancePool wire.PoolID = 1
	slotsPool   wire.PoolID = 2
)

// controlPlane is a control plane that keeps its state in memory instead of Postgres. It decides with the real
// allocator.
type controlPlane struct {
	server *natstest.Server
	conn   *nats.Conn
	stop   context.CancelFunc
	tasks  sync.WaitGroup

	mu        sync.Mutex
	allocator *allocator.Allocator
	results   map[wire.SessionID]wire.LeaseResponse
	closed    map[wire.SessionID]bool
	seqs      map[int64]settlement.IntervalSet
	settled   map[string]money.Nano
	sessions  wire.SessionID
	// delivered counts the messages from the usage stream.
	delivered int
	// noPostgres means that nothing can be decided or settled.
	noPostgres bool
}

func newControlPlane(t *testing.T, server *natstest.Server) *controlPlane {
	t.Helper()
	p := &controlPlane{
		server: server, allocator: allocator.New(), results: map[wire.SessionID]wire.LeaseResponse{},
		closed: map[wire.SessionID]bool{}, seqs: map[int64]settlement.IntervalSet{}, settled: map[string]money.Nano{},
	}
	for id, kind := range map[wire.PoolID]wire.PoolKind{balancePool: wire.Balance, slotsPool: wire.Slots} {
		const plenty = 1 << 40
		p.allocator.Pools[id] = &allocator.Pool{ID: id, Kind: kind, Generation: 1, Total: plenty, Free: plenty}
	}
	return p
}

// up starts answering proxies and settling usage.
func (p *controlPlane) up(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	p.conn, p.stop = p.server.Connect(), stop
	js := natstest.JetStream(t, p.conn)
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: subject.UsageStream, Subjects: []string{subject.UsageAll}, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: subject.ChangeStream, Subjects: []string{subject.FromAll(subject.FreshBeat)}, MaxMsgsPerSubject: 1, Storage: jetstream.FileStorage,
		Metadata: map[string]string{subject.IncarnationKey: "a"},
	})
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: subject.UsageConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, p, subject.Register, wire.RegisterResponse{V: wire.Version, Status: wire.Unavailable}, p.register)
	serve(t, p, subject.Heartbeat, wire.HeartbeatResponse{V: wire.Version, Status: wire.Unavailable}, p.heartbeat)
	serve(t, p, subject.LeaseRequest, wire.LeaseResponse{V: wire.Version, Status: wire.Unavailable}, p.leaseRequest)
	serve(t, p, subject.Return, wire.ReturnResponse{V: wire.Version, Status: wire.Unavailable}, p.returnUnits)
	serve(t, p, subject.Close, wire.CloseResponse{V: wire.Version, Status: wire.Unavailable}, p.close)
	p.tasks.Go(func() { p.settle(ctx, t, consumer) })
}

// down stops the control plane.
func (p *controlPlane) down() {
	p.stop()
	p.tasks.Wait()
	p.conn.Close()
}

// setPostgres sets whether the control plane can decide and settle.
func (p *controlPlane) setPostgres(works bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noPostgres = !works
}

func (p *controlPlane) hasPostgres() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.noPostgres
}

// serve answers requests, with unavailable while Postgres is unavailable.
func serve[Q, A any](t *testing.T, p *controlPlane, name string, unavailable A, answer func(*Q) A) {
	t.Helper()
	_, err := p.conn.QueueSubscribe(subject.FromAll(name), subject.Queue, func(m *nats.Msg) {
		q := new(Q)
		if err := json.Unmarshal(m.Data, q); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		p.mu.Lock()
		a := unavailable
		if !p.noPostgres {
			a = answer(q)
		}
		p.mu.Unlock()
		data, err := json.Marshal(a)
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (p *controlPlane) register(*wire.RegisterRequest) wire.RegisterResponse {
	p.sessions++
	return wire.RegisterResponse{V: wire.Version, Status: wire.Done, Session: p.sessions, WindowMS: window.Milliseconds(), StreamIncarnation: "one"}
}

// active reports whether a session is not closed, and marks ended sessions for the allocator. A session is fenced by the stream, which this
// control plane never does.
func (p *controlPlane) active(s wire.SessionID) bool {
	p.allocator.EndedSessions[s] = p.closed[s]
	return !p.closed[s]
}

func (p *controlPlane) heartbeat(r *wire.HeartbeatRequest) wire.HeartbeatResponse {
	if !p.active(r.Session) {
		return wire.HeartbeatResponse{V: wire.Version, Status: wire.Fenced}
	}
	return wire.HeartbeatResponse{V: wire.Version, Status: wire.Done, StreamIncarnation: "one"}
}

func (p *controlPlane) leaseRequest(op *wire.LeaseRequest) wire.LeaseResponse {
	switch last := p.results[op.Session]; {
	case !p.active(op.Session):
		return wire.LeaseResponse{V: wire.Version, Number: op.Number, Status: wire.Fenced}
	case op.Number <= last.Number:
		return last
	}
	reply, _ := p.allocator.Decide(op, &allocator.PendingRequest{})
	if reply.Status == wire.Done {
		p.results[op.Session] = reply
	}
	return reply
}

func (p *controlPlane) returnUnits(r *wire.Return) wire.ReturnResponse {
	if p.closed[r.Session] {
		return wire.ReturnResponse{V: wire.Version, Status: wire.Fenced}
	}
	p.allocator.ApplyReports(r.Session, r.Reports)
	return wire.ReturnResponse{V: wire.Version, Status: wire.Done}
}

func (p *controlPlane) close(r *wire.CloseRequest) wire.CloseResponse {
	if p.seqs[int64(r.Session)].Count() < r.FinalCount {
		return wire.CloseResponse{V: wire.Version, Status: wire.Wait}
	}
	if !p.closed[r.Session] {
		p.closed[r.Session] = true
		p.allocator.CloseSession(r.Session)
	}
	return wire.CloseResponse{V: wire.Version, Status: wire.Done}
}

// settle settles the batches of the usage stream.
func (p *controlPlane) settle(ctx context.Context, t *testing.T, consumer jetstream.Consumer) {
	for ctx.Err() == nil {
		if !p.hasPostgres() {
			time.Sleep(time.Second)
			continue
		}
		messages, err := consumer.Fetch(10, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			t.Errorf("fetch: %v", err)
			return
		}
		for m := range messages.Messages() {
			settled, err := p.settleBatch(m.Data())
			if errors.Is(err, errNoPostgres) {
				continue // the message is delivered again
			}
			if err == nil {
				err = m.Ack()
			}
			if err == nil {
				err = p.conn.Publish(subject.Settled(settled.Session), encode(settled))
			}
			if err != nil {
				t.Errorf("settle: %v", err)
			}
		}
	}
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

var errNoPostgres = errors.New("nothing is settled without Postgres")

// settleBatch settles each request of a batch once.
func (p *controlPlane) settleBatch(data []byte) (event.Settled, error) {
	var b event.Batch
	if err := json.Unmarshal(data, &b); err != nil {
		return event.Settled{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noPostgres {
		return event.Settled{}, errNoPostgres
	}
	p.delivered++
	for _, raw := range b.Events {
		var e event.Usage
		if err := json.Unmarshal(raw, &e); err != nil {
			return event.Settled{}, err
		}
		p.seqs[e.Session] = p.seqs[e.Session].Add(e.Seq)
		if before, again := p.settled[e.RequestID]; again {
			if before != e.Cost {
				return event.Settled{}, fmt.Errorf("request %s is settled twice, with %v and with %v", e.RequestID, before, e.Cost)
			}
			continue
		}
		p.settled[e.RequestID] = e.Cost
		s := wire.SessionID(e.Session)
		p.allocator.Charge(s, p.closed[s], balancePool, int64(e.Cost))
	}
	return p.seqs[b.Session].Settled(wire.SessionID(b.Session)), nil
}

// check compares every settled request with the admitted one.
func (p *controlPlane) check(t *testing.T, proxy *proxy) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	total := money.Nano(0)
	for id, cost := range proxy.finished {
		if got, found := p.settled[id]; !found || got != cost {
			t.Errorf("%s is settled with %v, %t; want %v", id, got, found, cost)
		}
		total += cost
	}
	if len(p.settled) != len(proxy.finished) {
		t.Errorf("%d requests are settled; want %d", len(p.settled), len(proxy.finished))
	}
	if used := proxy.spool.UsedCapacity(); used != 0 {
		t.Errorf("the spool uses %d units of its capacity", used)
	}
	balance, slots := p.allocator.Pools[balancePool], p.allocator.Pools[slotsPool]
	if balance.Settled != int64(total) || balance.Overrun != 0 || balance.Late != 0 {
		t.Errorf("balance: settled %d, overrun %d, late %d; want %d, 0, 0", balance.Settled, balance.Overrun, balance.Late, total)
	}
	for key, l := range p.allocator.Leases {
		if p.closed[key.Session] && l.Outstanding() != 0 {
			t.Errorf("closed session %d has %d units of pool %d outstanding", key.Session, l.Outstanding(), key.Pool)
		}
	}
	if held := slots.Outstanding(); slots.Settled != 0 || held < 0 {
		t.Errorf("slots: %d settled, %d outstanding", slots.Settled, held)
	}
}
