package natstest_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"modelgateway/shared/platform/testkit/natstest"
)

// Beats of proxies are to name the one before (ADR 0018), which relies on this
// behaviour of NATS, also under a leader that has just been elected.
func TestStreamStoresAMessageOnlyBehindTheOneThatItNames(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	js, err := jetstream.New(c.Connect())
	if err != nil {
		t.Fatal(err)
	}
	config := jetstream.StreamConfig{Name: "S", Subjects: []string{"beat.*", "change.*"}, MaxMsgsPerSubject: 1, Replicas: c.Len()}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	beat := func(id string, previous uint64) (uint64, error) {
		for {
			ack, err := js.Publish(t.Context(), "beat.p", nil, jetstream.WithMsgID(id), jetstream.WithExpectLastSequencePerSubject(previous))
			if err == nil {
				return ack.Sequence, nil
			}
			if t.Context().Err() != nil || !passes(err) {
				return 0, err
			}
		}
	}
	first, err := beat("first", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "change.k", nil); err != nil {
		t.Fatal(err)
	}
	second, err := beat("second", first)
	if err != nil || second != first+2 {
		t.Fatalf("the beat behind %d: got %d, %v; want it stored", first, second, err)
	}
	c.Kill(c.StreamLeader("S"))
	c.StreamLeader("S")
	var refused *jetstream.APIError
	if _, err := beat("late", first); !errors.As(err, &refused) || refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		t.Errorf("a beat behind one that is not the last: got %v; want it refused", err)
	}
	if third, err := beat("third", second); err != nil || third <= second {
		t.Errorf("the beat behind %d under the new leader: got %d, %v; want it stored", second, third, err)
	}
}
