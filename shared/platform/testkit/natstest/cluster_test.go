package natstest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/platform/testkit/natstest"
)

// publish stores a message in a stream. It repeats that while the stream has no leader; the id keeps the message from being stored
// twice if only the acknowledgement was lost.
func publish(t *testing.T, js jetstream.JetStream, text string) {
	t.Helper()
	for {
		_, err := js.Publish(t.Context(), "s", []byte(text), jetstream.WithMsgID(text))
		if err == nil {
			return
		}
		if t.Context().Err() != nil || !passes(err) {
			t.Fatalf("publish %s: %v", text, err)
		}
	}
}

// passes reports whether an error is one of a stream without a leader.
func passes(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrDisconnected)
}

// checkMessages checks that a stream has the messages in order.
func checkMessages(t *testing.T, stream jetstream.Stream, want ...string) {
	t.Helper()
	for i, text := range want {
		message, err := stream.GetMsg(t.Context(), uint64(i+1))
		for unavailable := new(jetstream.APIError); errors.As(err, &unavailable) && unavailable.Code == 503; {
			message, err = stream.GetMsg(t.Context(), uint64(i+1))
		}
		if err != nil || string(message.Data) != text {
			t.Errorf("message %d: got %v, %v; want %q", i+1, message, err, text)
		}
	}
}

func newStream(t *testing.T, c *natstest.Cluster) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	js, err := jetstream.New(c.Connect())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: c.Len()})
	if err != nil {
		t.Fatal(err)
	}
	return js, stream
}

func TestStreamSurvivesTheLossOfItsLeader(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	js, stream := newStream(t, c)
	publish(t, js, "first")
	leader := c.StreamLeader("S")
	c.Kill(leader)
	if next := c.StreamLeader("S"); next == leader {
		t.Errorf("server %d leads after its end", next)
	}
	publish(t, js, "second")
	c.Node(leader).Start()
	publish(t, js, "third")
	checkMessages(t, stream, "first", "second", "third")
}

// The smaller side of a cut network takes no messages, the larger one does.
func TestMinorityTakesNoMessages(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	js, stream := newStream(t, c)
	publish(t, js, "first")
	cut := c.StreamLeader("S")
	alone := c.Node(cut).Connect()
	mend := c.Cut(cut)
	rest := []int{0, 1, 2}
	rest = slices.Delete(rest, cut, cut+1)
	others, err := jetstream.New(c.Node(rest[0]).Connect())
	if err != nil {
		t.Fatal(err)
	}
	publish(t, others, "second")
	lonely, err := jetstream.New(alone)
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := lonely.Publish(t.Context(), "s", []byte("lost")); err == nil {
		t.Errorf("the server without the others acknowledged message %d", ack.Sequence)
	}
	mend()
	publish(t, others, "third")
	publish(t, js, "fourth")
	publish(t, lonely, "fifth")
	checkMessages(t, stream, "first", "second", "third", "fourth", "fifth")
}

// awaitReplicas waits until every server has stored all messages. An acknowledgement needs only two of three.
func awaitReplicas(t *testing.T, stream jetstream.Stream) {
	t.Helper()
	for {
		info, err := stream.Info(t.Context())
		if err != nil && t.Context().Err() != nil {
			t.Fatal(err)
		}
		if err == nil && info.Cluster != nil && len(info.Cluster.Replicas) == 2 &&
			!slices.ContainsFunc(info.Cluster.Replicas, func(r *jetstream.PeerInfo) bool { return !r.Current || r.Lag > 0 }) {
			return
		}
	}
}

// A server that returns with an old copy of its data gets what it lacks from the others. They must have it: messages that only this
// server and one other have stored can be lost, because two servers without them are a majority.
func TestServerReturnsWithAnOldStore(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	js, stream := newStream(t, c)
	publish(t, js, "message 0")
	old := c.StreamLeader("S")
	c.Kill(old)
	copied := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(copied, os.DirFS(c.Node(old).Dir())); err != nil {
		t.Fatal(err)
	}
	c.Node(old).Start()
	want := []string{"message 0"}
	for i := range 20 {
		want = append(want, fmt.Sprintf("message %d", i+1))
		publish(t, js, want[len(want)-1])
	}
	awaitReplicas(t, stream)
	c.Kill(old)
	if err := errors.Join(os.RemoveAll(c.Node(old).Dir()), os.CopyFS(c.Node(old).Dir(), os.DirFS(copied))); err != nil {
		t.Fatal(err)
	}
	c.Node(old).Start()
	want = append(want, "last")
	publish(t, js, "last")
	checkMessages(t, stream, want...)
}
