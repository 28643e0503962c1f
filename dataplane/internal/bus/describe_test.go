package bus

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/platform/testkit/natstest"
	"modelgateway/shared/pulse"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

func TestDescribeHandlerAnswersRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := wire.DescribeResponse{V: 1, Session: 7, Name: "one", ClockMS: 5, Peppers: []string{"p"}, FleetKey: "f"}
	err := b.Subscribe(Handlers{Describe: func() (wire.DescribeResponse, bool) { return want, true }})
	if err != nil {
		t.Fatal(err)
	}
	request, err := json.Marshal(wire.DescribeRequest{V: wire.Version})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Flush(t, b.nc)
	reply := b.ask(t, subject.Describe, request)
	var got wire.DescribeResponse
	if err := json.Unmarshal(reply.Data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
}

func TestReportsAndLinesOfTailsReachTheControlPlane(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reports, err := b.remote.SubscribeSync(subject.FromAll(subject.Pulse))
	if err != nil {
		t.Fatal(err)
	}
	answer := subject.NewAnswer("random")
	lines, err := b.remote.SubscribeSync(subject.FromAll(answer))
	if err != nil {
		t.Fatal(err)
	}
	followed := make(chan pulse.Tail, 1)
	if err := b.Subscribe(Handlers{Tail: func(q pulse.Tail, send func(pulse.Lines)) {
		followed <- q
		send(pulse.Lines{V: pulse.Version, ID: q.ID, Dropped: 2})
	}}); err != nil {
		t.Fatal(err)
	}
	// The server must know the subscriptions before another connection publishes.
	natstest.Flush(t, b.nc, b.remote)
	if err := b.SendPulse([]byte(`{"v":1,"proxy":"test"}`)); err != nil {
		t.Fatal(err)
	}
	if m, err := reports.NextMsgWithContext(t.Context()); err != nil || subject.Sender(m.Subject) != "test" {
		t.Errorf("report: %v, %v", m, err)
	}
	want := pulse.Tail{V: pulse.Version, ID: "one", Filter: pulse.Filter{Class: 4}}
	question, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.remote.PublishRequest(subject.Tail, answer, question); err != nil {
		t.Fatal(err)
	}
	if got := <-followed; got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
	m, err := lines.NextMsgWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got pulse.Lines
	if err := json.Unmarshal(m.Data, &got); err != nil || got.ID != "one" || got.Dropped != 2 || subject.Sender(m.Subject) != "test" {
		t.Errorf("lines %s on %s, %v", m.Data, m.Subject, err)
	}
}
