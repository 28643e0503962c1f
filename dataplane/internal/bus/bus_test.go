package bus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/shared/event"
	"modelgateway/shared/natsuser"
	"modelgateway/shared/platform/testkit/await"
	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fixture is a Bus with a server, and the control plane's connection to it.
type fixture struct {
	*Bus
	server *natstest.Server
	remote *nats.Conn // of the control plane
	js     jetstream.JetStream
}

func setup(t *testing.T) *fixture {
	t.Helper()
	server := natstest.New(t, natstest.Planes(t, "test"))
	log := slog.New(slog.DiscardHandler)
	b, err := Connect(Config{URL: server.URL(), User: natsuser.NameOf("test"), Password: natstest.Password, Name: "test", Options: []nats.Option{
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Errorf("NATS client: %v", err) }),
	}}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	remote := server.Connect()
	return &fixture{b, server, remote, natstest.JetStream(t, remote)}
}

// answer answers requests to a subject as the control plane.
func answer[Q, A any](t *testing.T, b *fixture, name string, f func(Q) A) {
	t.Helper()
	_, err := b.remote.QueueSubscribe(subject.From(name, "test"), subject.Queue, func(m *nats.Msg) {
		var q Q
		if err := json.Unmarshal(m.Data, &q); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		data, err := json.Marshal(f(q))
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
	natstest.Flush(t, b.remote)
}

// ask pushes a message as the control plane and returns the reply of the proxy.
func (b *fixture) ask(t *testing.T, name string, data []byte) *nats.Msg {
	t.Helper()
	to := subject.NewAnswer(rand.Text())
	replies, err := b.remote.SubscribeSync(subject.FromAll(to))
	if err == nil {
		err = b.remote.PublishRequest(name, to, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	reply, err := replies.NextMsgWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if proxy := subject.Sender(reply.Subject); proxy != "test" {
		t.Errorf("the reply to %s is from %q", name, proxy)
	}
	return reply
}

// push publishes a message as the control plane.
func push(t *testing.T, b *fixture, name string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = b.remote.Publish(name, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, b.remote)
}

// checkRequest checks that one kind of request and its response pass unchanged.
func checkRequest[Q, A any](t *testing.T, b *fixture, name string, send func(context.Context, *Q) (*A, error), q Q, want A) {
	t.Helper()
	var got Q
	answer(t, b, name, func(q Q) A { got = q; return want })
	reply, err := send(t.Context(), &q)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if diff := cmp.Diff(q, got); diff != "" {
		t.Errorf("%s: request (-want +got):\n%s", name, diff)
	}
	if diff := cmp.Diff(want, *reply); diff != "" {
		t.Errorf("%s: response (-want +got):\n%s", name, diff)
	}
}

func TestRequestsAndResponsesPassUnchanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	change := wire.KeyChange{V: 1, Revision: 5, PreviousRevision: 4, Kind: wire.KeyRevoked, KeyHash: [32]byte{1, 2}}
	checkRequest(t, b, subject.Register, b.Register, wire.RegisterRequest{V: 1, Name: "n", BootID: "b", Capacity: 3}, wire.RegisterResponse{Status: wire.Done, Session: 7, WindowMS: 20_000, Revision: 4})
	checkRequest(t, b, subject.Heartbeat, b.Heartbeat, wire.HeartbeatRequest{Session: 7, AppliedRevision: 4}, wire.HeartbeatResponse{Status: wire.Done, Changes: []wire.KeyChange{change}, More: true})
	checkRequest(t, b, subject.Close, b.CloseSession, wire.CloseRequest{Session: 7, FinalCount: 9}, wire.CloseResponse{Status: wire.Wait})
	checkRequest(t, b, subject.LeaseRequest, b.RequestLease,
		wire.LeaseRequest{Session: 7, Account: "a", Number: 2, Reports: []wire.LeaseReport{{Pool: 1, Returned: 3}}, Needs: [][]wire.Need{{{Pool: 1, Kind: wire.Balance, Amount: 8}}}},
		wire.LeaseResponse{Number: 2, Status: wire.Done, Decisions: []wire.Decision{{Reason: wire.BalanceReserved, Free: 1, Reserved: 2}}, Leases: []wire.LeaseState{{Pool: 1, Granted: 5, Generation: 1}}})
	checkRequest(t, b, subject.Return, b.Return, wire.Return{Session: 7, Reports: []wire.LeaseReport{{Pool: 1, Generation: 2, GrantedSeen: 3, Returned: 3}}}, wire.ReturnResponse{Status: wire.Fenced})
	checkRequest(t, b, subject.LoadKey, b.LoadKey, wire.LoadKeyRequest{KeyHash: change.KeyHash}, wire.LoadKeyResponse{Status: wire.Done, ReadRevision: 5, Record: &wire.KeyRecord{KeyID: "k", Active: true, BalancePool: 1}})
	checkRequest(t, b, subject.Balance, b.Balance, wire.BalanceRequest{AccountID: "a", KeyID: "k"}, wire.BalanceResponse{Status: wire.Done, Balance: -5, Reserved: 3})
}

func TestRequestFailsWithoutValidResponse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.RequestLease(t.Context(), &wire.LeaseRequest{}); !errors.Is(err, admission.ErrNoControlPlane) {
		t.Errorf("without a responder: got %v; want %v", err, admission.ErrNoControlPlane)
	}
	received := make(chan struct{})
	sub, err := b.remote.Subscribe(subject.FromAll(subject.LeaseRequest), func(*nats.Msg) { close(received) })
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, b.remote)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-received; cancel() }()
	if _, err := b.RequestLease(ctx, &wire.LeaseRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("without a response: got %v; want %v", err, context.Canceled)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	answer(t, b, subject.LeaseRequest, func(wire.LeaseRequest) string { return "no lease response" })
	if _, err := b.RequestLease(t.Context(), &wire.LeaseRequest{}); err == nil {
		t.Error("with a response that cannot be decoded: got no error")
	}
}

// pushed records the pushed messages, in order.
type pushed struct {
	mu   sync.Mutex
	list []string
	more chan struct{}
	// hasSession makes the Reserved handler answer.
	hasSession bool
}

func (r *pushed) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprintf(format, args...))
	r.more <- struct{}{}
}

// wait waits for n messages and returns them.
func (r *pushed) wait(n int) []string {
	for range n {
		<-r.more
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

// subscribe subscribes with handlers that record the messages.
func (b *fixture) subscribe(t *testing.T) *pushed {
	t.Helper()
	r := &pushed{more: make(chan struct{}, 100)}
	err := b.Subscribe(Handlers{
		KeyChange: func(c wire.KeyChange, ack func(wire.Ack)) {
			ack(wire.Ack{V: 1, Session: 7, Revision: c.Revision})
			r.add("change %d", c.Revision)
		},
		Recall:  func(c wire.Recall) { r.add("recall %s %d %d", c.Account, c.Pool, c.Generation) },
		Settled: func(s event.Settled) { r.add("settled %d to %d and %v", s.Session, s.Watermark, s.Beyond) },
		Reserved: func(q wire.ReservedRequest) (wire.ReservedResponse, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return wire.ReservedResponse{V: 1, Session: 7, Reserved: map[wire.PoolID]int64{3: int64(len(q.Account))}}, r.hasSession
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// subscribeSession subscribes to a session until that is confirmed within the second that the proxy waits.
func (b *fixture) subscribeSession(t *testing.T, id wire.SessionID) {
	t.Helper()
	await.Until(t, "the subscriptions of a session", func() bool { return b.SubscribeSession(id) == nil })
}

func TestPushedMessagesReachHandlers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.subscribe(t)
	b.subscribeSession(t, 7)
	push(t, b, subject.Recall(7), wire.Recall{Account: "a", Pool: 3, Generation: 4})
	push(t, b, subject.Recall(6), wire.Recall{Account: "another session"})
	if diff := cmp.Diff([]string{"recall a 3 4"}, r.wait(1)); diff != "" {
		t.Errorf("pushed messages (-want +got):\n%s", diff)
	}
	// With a later session, the watermarks of the session before and of a session of an earlier process are received.
	b.subscribeSession(t, 8)
	if err := b.SubscribeSettled(2); err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, b.nc)
	for _, session := range []int64{2, 7, 8, 9} {
		push(t, b, subject.Settled(session), event.Settled{Session: session, Watermark: 5, Beyond: [][2]int64{{7, 9}}})
		if session == 9 {
			continue // a session of another proxy
		}
		want := []string{fmt.Sprintf("settled %d to 5 and [[7 9]]", session)}
		if diff := cmp.Diff(want, r.wait(1)); diff != "" {
			t.Errorf("pushed messages (-want +got):\n%s", diff)
		}
	}
	push(t, b, subject.Recall(7), wire.Recall{Account: "earlier session"})
	push(t, b, subject.Recall(8), "not a recall")
	push(t, b, subject.Recall(8), wire.Recall{Account: "b", Pool: 1, Generation: 2})
	if diff := cmp.Diff([]string{"recall b 1 2"}, r.wait(1)); diff != "" {
		t.Errorf("after a message that cannot be decoded (-want +got):\n%s", diff)
	}
}

func TestKeyChangesAreAcknowledged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.subscribe(t)
	natstest.Flush(t, b.nc)
	data, err := json.Marshal(wire.KeyChange{V: 1, Revision: 12, PreviousRevision: 11, Kind: wire.AccountUpdated, Account: "a"})
	if err != nil {
		t.Fatal(err)
	}
	reply := b.ask(t, subject.KeyChange, data)
	var ack wire.Ack
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wire.Ack{V: 1, Session: 7, Revision: 12}, ack); diff != "" {
		t.Errorf("acknowledgement (-want +got):\n%s", diff)
	}
	push(t, b, subject.KeyChange, wire.KeyChange{Revision: 13}) // without a reply subject
	if diff := cmp.Diff([]string{"change 12", "change 13"}, r.wait(2)); diff != "" {
		t.Errorf("pushed messages (-want +got):\n%s", diff)
	}
}

func TestFailedSubscribeSessionLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t)
	b.server.Stop()
	before := b.nc.NumSubscriptions()
	if err := b.SubscribeSession(7); err == nil {
		t.Error("SubscribeSession succeeded without a server")
	}
	if after := b.nc.NumSubscriptions(); after != before {
		t.Errorf("%d subscriptions are left", after-before)
	}
}

// createUsageStream creates the usage stream.
func (b *fixture) createUsageStream(t *testing.T) jetstream.Stream {
	t.Helper()
	s, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: subject.UsageStream, Subjects: []string{subject.UsageAll}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPublishUsageStoresEachBatchOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.PublishUsage(t.Context(), 7, "bat_1", []byte("x")); err == nil {
		t.Error("PublishUsage succeeded without a stream")
	}
	stream := b.createUsageStream(t)
	for _, id := range []string{"bat_1", "bat_1", "bat_2"} {
		if err := b.PublishUsage(await.Context(t), 7, id, []byte("batch "+id)); err != nil {
			t.Error(err)
		}
	}
	for n, want := range map[uint64]string{1: "batch bat_1", 2: "batch bat_2"} {
		m, err := stream.GetMsg(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != want || m.Subject != subject.Usage("test", 7) {
			t.Errorf("message %d: %q on %s; want %q", n, m.Data, m.Subject, want)
		}
	}
}

// The client reconnects with its subscriptions. A message that could not be sent
// without a connection is not sent later.
func TestReconnectKeepsSubscriptionsAndSendsNoOldMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.subscribe(t)
	b.createUsageStream(t)
	b.subscribeSession(t, 7)
	down, up := b.nc.StatusChanged(nats.RECONNECTING), b.nc.StatusChanged(nats.CONNECTED)
	b.server.Stop()
	<-down
	if err := b.PublishUsage(t.Context(), 7, "bat_1", []byte("not sent")); err == nil {
		t.Error("PublishUsage succeeded without a server")
	}
	if _, err := b.RequestLease(t.Context(), &wire.LeaseRequest{}); err == nil {
		t.Error("RequestLease succeeded without a server")
	}
	b.server.Start()
	<-up
	natstest.Flush(t, b.nc)
	if err := b.PublishUsage(await.Context(t), 7, "bat_2", []byte("sent")); err != nil {
		t.Error(err)
	}
	stream, err := b.js.Stream(t.Context(), subject.UsageStream)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.GetLastMsgForSubject(t.Context(), subject.Usage("test", 7)); err != nil || string(m.Data) != "sent" || m.Sequence != 1 {
		t.Errorf("got %+v, %v; want the message that was published after the reconnect", m, err)
	}
	push(t, b, subject.Recall(7), wire.Recall{Account: "a", Pool: 3, Generation: 4})
	if diff := cmp.Diff([]string{"recall a 3 4"}, r.wait(1)); diff != "" {
		t.Errorf("pushed messages (-want +got):\n%s", diff)
	}
}

func TestConnectRefusesInvalidURL(t *testing.T) {
	t.Parallel()
	if b, err := Connect(Config{URL: "nats://[::1"}, slog.New(slog.DiscardHandler)); err == nil {
		b.Close()
		t.Error("got no error")
	}
}
