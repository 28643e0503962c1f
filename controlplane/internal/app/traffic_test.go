package app

import (
	"bufio"
	"io"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/postgres/pgtest"
	"modelgateway/shared/platform/testkit/natstest"
)

// Streams have no end of their own that comes soon: unless the stop ends them, it lasts until the timeout, and fails.
func TestStopEndsOpenStreams(t *testing.T) {
	cfg := testConfig(pgtest.URL(t), natstest.New(t).URL())
	r := start(t, cfg)
	api, err := adminclient.New(r.admin, token)
	if err != nil {
		t.Fatal(err)
	}
	now, err := api.StreamTraffic(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := api.TailRequests(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []io.Reader{now.Body, tail.Body} {
		if lines := bufio.NewScanner(stream); !lines.Scan() {
			t.Errorf("a stream has no first event: %v", lines.Err())
		}
	}
	r.end(t)
	for _, stream := range []io.Reader{now.Body, tail.Body} {
		if _, err := io.Copy(io.Discard, stream); err != nil {
			t.Errorf("a stream ended with %v", err)
		}
	}
}
