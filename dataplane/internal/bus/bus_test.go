package bus

import (
	"context"
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

	"modelgateway/scripts/testkit/natstest"
	"modelgateway/shared/event"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// bundle is a Bus and the other side of it.
type bundle struct {
	*Bus
	server *natstest.Server
	far    *nats.Conn
	js     jetstream.JetStream
}

func setup(t *testing.T) *bundle {
	t.Helper()
	server := natstest.New(t)
	b, err := Connect(Config{URL: server.URL(), Name: "test"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	far := server.Connect()
	js, err := jetstream.New(far)
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{b, server, far, js}
}

// answer has the other side answer requests on a subject.
func answer[Q, A any](t *testing.T, b *bundle, name string, f func(Q) A) {
	t.Helper()
	_, err := b.far.QueueSubscribe(name, subject.Queue, func(m *nats.Msg) {
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
	if err == nil {
		err = b.far.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// push sends a message to the Bus.
func push(t *testing.T, b *bundle, name string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = b.far.Publish(name, data)
	}
	if err == nil {
		err = b.far.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// asks checks one kind of request there and back.
func asks[Q, A any](t *testing.T, b *bundle, name string, ask func(context.Context, *Q) (*A, error), q Q, want A) {
	t.Helper()
	var got Q
	answer(t, b, name, func(asked Q) A { got = asked; return want })
	reply, err := ask(t.Context(), &q)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if diff := cmp.Diff(q, got); diff != "" {
		t.Errorf("%s: asked (-want +got):\n%s", name, diff)
	}
	if diff := cmp.Diff(want, *reply); diff != "" {
		t.Errorf("%s: answered (-want +got):\n%s", name, diff)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	change := wire.KeyChange{V: 1, Revision: 5, PreviousRevision: 4, Kind: wire.KeyRevoked, KeyHash: [32]byte{1, 2}}
	asks(t, b, subject.Register, b.Register, wire.RegisterRequest{V: 1, Name: "n", BootID: "b", Capacity: 3}, wire.RegisterResponse{Status: wire.Done, Session: 7, ValidMS: 30_000, Revision: 4})
	asks(t, b, subject.Heartbeat, b.Heartbeat, wire.HeartbeatRequest{Session: 7, AppliedRevision: 4}, wire.HeartbeatResponse{Status: wire.Done, Changes: []wire.KeyChange{change}, More: true})
	asks(t, b, subject.Close, b.CloseSession, wire.CloseRequest{Session: 7, FinalCount: 9}, wire.CloseResponse{Status: wire.Wait})
	asks(t, b, subject.LeaseRequest, b.RequestLease,
		wire.LeaseRequest{Session: 7, Account: "a", Number: 2, Reports: []wire.LeaseReport{{Pool: 1, Returned: 3}}, Needs: [][]wire.Need{{{Pool: 1, Kind: wire.Balance, Amount: 8}}}},
		wire.LeaseResponse{Number: 2, Status: wire.Done, Decisions: []wire.Decision{{Reason: wire.BalanceReserved, Free: 1, Reserved: 2}}, Leases: []wire.LeaseState{{Pool: 1, Granted: 5, Generation: 1}}})
	asks(t, b, subject.Return, b.Return, wire.Return{Session: 7, Reports: []wire.LeaseReport{{Pool: 1, Generation: 2, GrantedSeen: 3, Returned: 3}}}, wire.ReturnResponse{Status: wire.Fenced})
	asks(t, b, subject.LoadKey, b.LoadKey, wire.LoadKeyRequest{KeyHash: change.KeyHash}, wire.LoadKeyResponse{Status: wire.Done, ReadRevision: 5, Record: &wire.KeyRecord{KeyID: "k", Active: true, BalancePool: 1}})
	asks(t, b, subject.Balance, b.Balance, wire.BalanceRequest{AccountID: "a", KeyID: "k"}, wire.BalanceResponse{Status: wire.Done, Balance: -5, Reserved: 3})
}

func TestRequestWithoutAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.RequestLease(t.Context(), &wire.LeaseRequest{}); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("with nobody there: %v", err)
	}
	asked := make(chan struct{})
	sub, err := b.far.Subscribe(subject.LeaseRequest, func(*nats.Msg) { close(asked) })
	if err == nil {
		err = b.far.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := b.RequestLease(ctx, &wire.LeaseRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with silence: %v", err)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	answer(t, b, subject.LeaseRequest, func(wire.LeaseRequest) string { return "no reply to an op" })
	if _, err := b.RequestLease(t.Context(), &wire.LeaseRequest{}); err == nil {
		t.Error("an unreadable reply is no error")
	}
}

// received is what was pushed, in order.
type received struct {
	mu   sync.Mutex
	list []string
	more chan struct{}
	held bool
}

func (r *received) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprintf(format, args...))
	r.more <- struct{}{}
}

// wait returns what came, when there are n.
func (r *received) wait(n int) []string {
	for range n {
		<-r.more
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

func (b *bundle) handle(t *testing.T) *received {
	t.Helper()
	r := &received{more: make(chan struct{}, 100)}
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
			return wire.ReservedResponse{V: 1, Session: 7, Reserved: map[wire.PoolID]int64{3: int64(len(q.Account))}}, r.held
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPushes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.handle(t)
	if err := b.SubscribeSession(7); err != nil {
		t.Fatal(err)
	}
	push(t, b, subject.Recall(7), wire.Recall{Account: "a", Pool: 3, Generation: 4})
	push(t, b, subject.Recall(6), wire.Recall{Account: "of another session"})
	if diff := cmp.Diff([]string{"recall a 3 4"}, r.wait(1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A later session: the watermarks of the earlier one still come, and those of an earlier process.
	if err := b.SubscribeSession(8); err != nil {
		t.Fatal(err)
	}
	if err := b.SubscribeSettled(2); err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, session := range []int64{2, 7, 8, 9} {
		push(t, b, subject.Settled(session), event.Settled{Session: session, Watermark: 5, Beyond: [][2]int64{{7, 9}}})
		if session == 9 {
			continue // of another proxy
		}
		want := []string{fmt.Sprintf("settled %d to 5 and [[7 9]]", session)}
		if diff := cmp.Diff(want, r.wait(1)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	push(t, b, subject.Recall(7), wire.Recall{Account: "of the earlier session"})
	push(t, b, subject.Recall(8), "no recall")
	push(t, b, subject.Recall(8), wire.Recall{Account: "b", Pool: 1, Generation: 2})
	if diff := cmp.Diff([]string{"recall b 1 2"}, r.wait(1)); diff != "" {
		t.Errorf("after an unreadable one (-want +got):\n%s", diff)
	}
}

func TestChangesAreAcknowledged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.handle(t)
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(wire.KeyChange{V: 1, Revision: 12, PreviousRevision: 11, Kind: wire.AccountUpdated, Account: "a"})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := b.far.RequestWithContext(t.Context(), subject.KeyChange, data)
	if err != nil {
		t.Fatal(err)
	}
	var ack wire.Ack
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wire.Ack{V: 1, Session: 7, Revision: 12}, ack); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	push(t, b, subject.KeyChange, wire.KeyChange{Revision: 13}) // without a place for the answer
	if diff := cmp.Diff([]string{"change 12", "change 13"}, r.wait(2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A failed Watch leaves no subscription behind.
func TestFailedWatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.handle(t)
	b.server.Stop()
	before := b.nc.NumSubscriptions()
	if err := b.SubscribeSession(7); err == nil {
		t.Error("watched without a server")
	}
	if after := b.nc.NumSubscriptions(); after != before {
		t.Errorf("%d subscriptions are left over", after-before)
	}
}

func (b *bundle) declareUsage(t *testing.T) jetstream.Stream {
	t.Helper()
	s, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: subject.UsageStream, Subjects: []string{subject.UsageAll}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPublishUsage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.PublishUsage(t.Context(), 7, "bat_1", []byte("x")); err == nil {
		t.Error("published without a stream")
	}
	stream := b.declareUsage(t)
	for _, id := range []string{"bat_1", "bat_1", "bat_2"} {
		if err := b.PublishUsage(t.Context(), 7, id, []byte("of "+id)); err != nil {
			t.Error(err)
		}
	}
	for n, want := range map[uint64]string{1: "of bat_1", 2: "of bat_2"} {
		m, err := stream.GetMsg(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != want || m.Subject != subject.Usage(7) {
			t.Errorf("message %d: %q on %s; want %q", n, m.Data, m.Subject, want)
		}
	}
}

// The connection comes back by itself, with its subscriptions; meanwhile
// nothing is kept for later.
func TestReconnect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.handle(t)
	b.declareUsage(t)
	if err := b.SubscribeSession(7); err != nil {
		t.Fatal(err)
	}
	if err := b.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	down, up := b.nc.StatusChanged(nats.RECONNECTING), b.nc.StatusChanged(nats.CONNECTED)
	b.server.Stop()
	<-down
	if err := b.Ready(t.Context()); err == nil {
		t.Error("ready without a server")
	}
	if err := b.PublishUsage(t.Context(), 7, "bat_1", []byte("lost")); err == nil {
		t.Error("published without a server")
	}
	if _, err := b.RequestLease(t.Context(), &wire.LeaseRequest{}); err == nil {
		t.Error("asked without a server")
	}
	b.server.Start()
	<-up
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := b.PublishUsage(t.Context(), 7, "bat_2", []byte("kept")); err != nil {
		t.Error(err)
	}
	stream, err := b.js.Stream(t.Context(), subject.UsageStream)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.GetLastMsgForSubject(t.Context(), subject.Usage(7)); err != nil || string(m.Data) != "kept" || m.Sequence != 1 {
		t.Errorf("got %+v, %v; want the one that was published after the return", m, err)
	}
	push(t, b, subject.Recall(7), wire.Recall{Account: "a", Pool: 3, Generation: 4})
	if diff := cmp.Diff([]string{"recall a 3 4"}, r.wait(1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConnectFails(t *testing.T) {
	t.Parallel()
	if b, err := Connect(Config{URL: "nats://[::1"}, slog.New(slog.DiscardHandler)); err == nil {
		b.Close()
		t.Error("connected to what is no address")
	}
}
