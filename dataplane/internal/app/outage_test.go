package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/bus"
	"modelgateway/dataplane/internal/session"
	"modelgateway/dataplane/internal/spool"
	"modelgateway/scripts/testkit/natstest"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/lease/settlement"
	"modelgateway/shared/money"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

func TestMain(m *testing.M) {
	natstest.PrepareBubbles()
	os.Exit(m.Run())
}

// outageVariable tells a process which outage it is to go through.
const outageVariable = "MGW_TEST_OUTAGE_SESSION"

// For half an hour there is no control plane, while NATS goes on and the proxy
// stands. Nothing is admitted beyond the end of the session; with sessions that
// outlast the outage, what the proxy holds is used up. In the end all usage is
// settled, once, and nothing is held.
//
// The time is a fake one, the proxy's parts and NATS are the real ones. Each
// outage has a process of its own, because a process can have one such bubble.
func TestControlPlaneIsDownForHalfAnHour(t *testing.T) {
	t.Parallel()
	for _, valid := range []string{"30s", "35m"} {
		t.Run(valid, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutageInBubble$", "-test.count=1", "-test.v")
			cmd.Env = append(os.Environ(), outageVariable+"="+valid)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// TestOutageInBubble is the part of TestControlPlaneIsDownForHalfAnHour that
// runs in a process of its own.
func TestOutageInBubble(t *testing.T) {
	valid, err := time.ParseDuration(cmp.Or(os.Getenv(outageVariable), "0s"))
	if err != nil || valid == 0 {
		t.Skip("runs as part of TestControlPlaneIsDownForHalfAnHour")
	}
	synctest.Test(t, func(t *testing.T) { goThroughOutage(t, valid) })
}

const (
	// outage is how long there is no control plane, before how long there was one.
	outage, before = 30 * time.Minute, 2 * time.Minute
	// every is the pause between requests, takes how long each runs; a few run for nearly as long as any may.
	every, takes, longest = time.Second, 3 * time.Second, 9 * time.Minute
	// estimate is what a request holds, cost what it costs.
	estimate, cost money.Nano = 1000, 400
)

func goThroughOutage(t *testing.T, valid time.Duration) {
	server := natstest.NewInBubble(t)
	defer server.Stop()
	plane := newPlane(t, server, valid)
	plane.up(t)
	defer plane.down()
	proxy := newProxy(t, server)
	defer proxy.stop(t)

	stop := proxy.ask(t)
	time.Sleep(before)
	running := proxy.admitted()
	plane.down()
	cut := time.Now()
	time.Sleep(outage)
	during := proxy.admitted() - running
	last := proxy.last().Sub(cut)
	switch {
	case last > valid:
		t.Errorf("a request was admitted %s after the control plane had gone; want none after %s", last, valid)
	case valid > outage && during < 100:
		t.Errorf("%d requests were admitted meanwhile; want what the proxy held", during)
	}
	plane.up(t)
	time.Sleep(before)
	stop()
	time.Sleep(longest + before) // whatever runs ends, is published and settled
	if after := proxy.admitted() - running - during; after < int(before/every)/2 {
		t.Errorf("%d requests were admitted afterwards; want it to go on as before", after)
	}
	plane.check(t, proxy)
	t.Logf("sessions of %s: %d requests before, %d meanwhile, the last after %s, %d in all; %d messages on the stream",
		valid, running, during, last.Round(time.Second), proxy.admitted(), plane.delivered)
}

// proxy is a data plane without its HTTP side.
type proxy struct {
	spool     *spool.Spool
	messages  *bus.Bus
	keeper    *session.Keeper
	admit     *admission.Admission
	publisher *spool.Publisher
	key       *auth.Key
	requests  sync.WaitGroup

	mu sync.Mutex
	// finished holds what every admitted request has cost; latest is when the last one was admitted.
	finished map[string]money.Nano
	latest   time.Time
}

// anyKey says that every key is good.
type anyKey struct{}

func (anyKey) Valid(*auth.Key) bool                          { return true }
func (anyKey) Dead(context.Context, *auth.Key) (bool, error) { return false, nil }
func (anyKey) Reset(int64)                                   {}
func (anyKey) Apply(wire.KeyChange)                          {}

func newProxy(t *testing.T, server *natstest.BubbleServer) *proxy {
	t.Helper()
	log, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	p := &proxy{finished: map[string]money.Nano{}, key: &auth.Key{KeyRecord: wire.KeyRecord{
		KeyID: ident.Key.New(), AccountID: ident.Account.New(), Active: true, BalancePool: balancePool, SlotsPool: slotsPool,
	}}}
	var err error
	if p.spool, err = spool.Open(spool.Config{Dir: t.TempDir(), MaxEvents: 10_000, MaxBytes: 64 << 20}, log); err != nil {
		t.Fatal(err)
	}
	if p.messages, err = bus.Connect(bus.Config{Name: "proxy", Options: []nats.Option{server.Connection()}}, log); err != nil {
		t.Fatal(err)
	}
	p.keeper = session.New(session.Config{Name: "proxy", Capacity: p.spool.Capacity()}, p.messages, anyKey{}, p.spool, session.Hooks{
		OnSession: func(s *session.Session) { p.admit.OnSession(s) },
		OnChange:  func(wire.KeyChange) {},
		State:     func() session.Report { return session.Report{Running: p.admit.Running()} },
	}, log, reg)
	p.admit = admission.New(p.keeper, anyKey{}, spoolCapacity{p.spool}, p.messages, admission.NewMetrics(reg), log)
	p.publisher = spool.NewPublisher(p.spool, p.messages, log, reg)
	if err := subscribe(p.messages, p.spool, p.keeper, p.admit, wire.DescribeResponse{}); err != nil {
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
		t.Errorf("leave: %v", err)
	}
	p.publisher.Stop()
	p.messages.Close()
	if err := p.spool.Close(); err != nil {
		t.Error(err)
	}
}

// ask asks for one request after the other until stop is called. Every
// hundredth runs for long.
func (p *proxy) ask(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p.requests.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			d := takes
			if n%100 == 0 {
				d = longest
			}
			p.requests.Go(func() { p.request(ctx, t, d) })
			time.Sleep(every)
		}
	})
	return cancel
}

func (p *proxy) request(ctx context.Context, t *testing.T, takes time.Duration) {
	e := event.Usage{
		V: event.Version, RequestID: ident.Request.New(), AccountID: p.key.AccountID, KeyID: p.key.KeyID, Model: "model", Format: "chat",
	}
	hold, err := p.admit.Acquire(ctx, admission.Request{Key: p.key, Reserve: estimate, Slot: true, Event: e})
	if err == nil {
		err = hold.Start()
	}
	if err != nil {
		if !errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("got %v; want an answer, or that none can be had", err)
		}
		return
	}
	p.mu.Lock()
	p.finished[e.RequestID], p.latest = cost, time.Now()
	p.mu.Unlock()
	time.Sleep(takes)
	hold.Finish(func(e *event.Usage) {
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

// plane is a control plane: what the real one keeps in Postgres, and the
// decisions that it makes with lease.Book.
type plane struct {
	server *natstest.BubbleServer
	valid  time.Duration
	conn   *nats.Conn
	stop   context.CancelFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex
	book     *allocator.Allocator
	results  map[wire.SessionID]wire.LeaseResponse
	until    map[wire.SessionID]time.Time
	closed   map[wire.SessionID]bool
	numbers  map[int64]settlement.IntervalSet
	settled  map[string]money.Nano
	sessions wire.SessionID
	// delivered is how many messages of usage have come.
	delivered int
}

func newPlane(t *testing.T, server *natstest.BubbleServer, valid time.Duration) *plane {
	t.Helper()
	p := &plane{
		server: server, valid: valid, book: allocator.New(), results: map[wire.SessionID]wire.LeaseResponse{}, until: map[wire.SessionID]time.Time{},
		closed: map[wire.SessionID]bool{}, numbers: map[int64]settlement.IntervalSet{}, settled: map[string]money.Nano{},
	}
	for id, kind := range map[wire.PoolID]wire.Kind{balancePool: wire.Balance, slotsPool: wire.Slots} {
		const plenty = 1 << 40
		p.book.Pools[id] = &allocator.Pool{ID: id, Kind: kind, Generation: 1, Total: plenty, Free: plenty}
	}
	return p
}

// up serves proxies and settles usage.
func (p *plane) up(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var err error
	if p.conn, err = nats.Connect("", p.server.Connection()); err != nil {
		t.Fatal(err)
	}
	p.stop = stop
	js, err := jetstream.New(p.conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: subject.UsageStream, Subjects: []string{subject.UsageAll}, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
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
	serve(t, p, subject.Register, p.register)
	serve(t, p, subject.Heartbeat, p.renew)
	serve(t, p, subject.LeaseRequest, p.op)
	serve(t, p, subject.Return, p.giveBack)
	serve(t, p, subject.Close, p.close)
	p.tasks.Go(func() { p.settle(ctx, t, consumer) })
}

// down ends it all.
func (p *plane) down() {
	p.stop()
	p.tasks.Wait()
	p.conn.Close()
}

func serve[Q, A any](t *testing.T, p *plane, name string, answer func(*Q) A) {
	t.Helper()
	_, err := p.conn.QueueSubscribe(name, subject.Queue, func(m *nats.Msg) {
		q := new(Q)
		if err := json.Unmarshal(m.Data, q); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		p.mu.Lock()
		a := answer(q)
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

func (p *plane) register(*wire.RegisterRequest) wire.RegisterResponse {
	p.sessions++
	p.until[p.sessions] = time.Now().Add(p.valid)
	return wire.RegisterResponse{V: wire.Version, Status: wire.Done, Session: p.sessions, ValidMS: p.valid.Milliseconds(), StreamIncarnation: "one"}
}

// active tells whether a session may ask, and lets its books know if not.
func (p *plane) active(s wire.SessionID) bool {
	live := !p.closed[s] && time.Now().Before(p.until[s].Add(time.Second))
	p.book.EndedSessions[s] = !live
	return live
}

func (p *plane) renew(r *wire.HeartbeatRequest) wire.HeartbeatResponse {
	if !p.active(r.Session) {
		return wire.HeartbeatResponse{V: wire.Version, Status: wire.Fenced}
	}
	p.until[r.Session] = time.Now().Add(p.valid)
	return wire.HeartbeatResponse{V: wire.Version, Status: wire.Done, ValidMS: p.valid.Milliseconds(), StreamIncarnation: "one"}
}

func (p *plane) op(op *wire.LeaseRequest) wire.LeaseResponse {
	switch last := p.results[op.Session]; {
	case !p.active(op.Session):
		return wire.LeaseResponse{V: wire.Version, Number: op.Number, Status: wire.Fenced}
	case op.Number <= last.Number:
		return last
	}
	reply, _ := p.book.Decide(op, &allocator.PendingRequest{})
	if reply.Status == wire.Done {
		p.results[op.Session] = reply
	}
	return reply
}

func (p *plane) giveBack(r *wire.Return) wire.ReturnResponse {
	if p.closed[r.Session] {
		return wire.ReturnResponse{V: wire.Version, Status: wire.Fenced}
	}
	p.book.ApplyReports(r.Session, r.Reports)
	return wire.ReturnResponse{V: wire.Version, Status: wire.Done}
}

func (p *plane) close(r *wire.CloseRequest) wire.CloseResponse {
	p.until[r.Session] = time.Time{}
	if p.numbers[int64(r.Session)].Count() < r.FinalCount {
		return wire.CloseResponse{V: wire.Version, Status: wire.Wait}
	}
	if !p.closed[r.Session] {
		p.closed[r.Session] = true
		p.book.CloseSession(r.Session)
	}
	return wire.CloseResponse{V: wire.Version, Status: wire.Done}
}

// settle takes usage from the stream.
func (p *plane) settle(ctx context.Context, t *testing.T, consumer jetstream.Consumer) {
	for ctx.Err() == nil {
		messages, err := consumer.Fetch(10, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			t.Errorf("fetch: %v", err)
			return
		}
		for m := range messages.Messages() {
			mark, err := p.take(m.Data())
			if err == nil {
				err = m.Ack()
			}
			if err == nil {
				err = p.conn.Publish(subject.Settled(mark.Session), encode(mark))
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

// take settles a batch, each request once.
func (p *plane) take(data []byte) (event.Settled, error) {
	var b event.Batch
	if err := json.Unmarshal(data, &b); err != nil {
		return event.Settled{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delivered++
	for _, raw := range b.Events {
		var e event.Usage
		if err := json.Unmarshal(raw, &e); err != nil {
			return event.Settled{}, err
		}
		p.numbers[e.Session] = p.numbers[e.Session].Add(e.Seq)
		if before, again := p.settled[e.RequestID]; again {
			if before != e.Cost {
				return event.Settled{}, fmt.Errorf("%s cost %v and then %v", e.RequestID, before, e.Cost)
			}
			continue
		}
		p.settled[e.RequestID] = e.Cost
		s := wire.SessionID(e.Session)
		p.book.Charge(s, p.closed[s], balancePool, int64(e.Cost))
	}
	return p.numbers[b.Session].Settled(wire.SessionID(b.Session)), nil
}

// check compares what was settled with what was admitted, one by one.
func (p *plane) check(t *testing.T, proxy *proxy) {
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
	if used := proxy.spool.Used(); used != 0 {
		t.Errorf("the spool keeps %d places", used)
	}
	balance, slots := p.book.Pools[balancePool], p.book.Pools[slotsPool]
	if balance.Settled != int64(total) || balance.Overrun != 0 || balance.Late != 0 {
		t.Errorf("the balance was charged %d, %d beyond its grants, %d late; want %d alone", balance.Settled, balance.Overrun, balance.Late, total)
	}
	for key, l := range p.book.Leases {
		if p.closed[key.Session] && l.Outstanding() != 0 {
			t.Errorf("closed session %d holds %d of pool %d", key.Session, l.Outstanding(), key.Pool)
		}
	}
	if held := slots.Outstanding(); slots.Settled != 0 || held < 0 {
		t.Errorf("of slots, %d are charged and %d held", slots.Settled, held)
	}
}
