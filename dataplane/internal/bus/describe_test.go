package bus

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	reply := b.ask(t, subject.Describe, request)
	var got wire.DescribeResponse
	if err := json.Unmarshal(reply.Data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
}
