package catalogpages

import (
	"testing"

	"modelgateway/controlplane/adminclient"
)

func TestUseIsCountedInWords(t *testing.T) {
	t.Parallel()
	calls := &adminclient.RouteCalls{}
	u := &use{Heard: 1, InFlight: 1, routes: []adminclient.RouteHealth{{Calls: calls}}}
	for n, want := range map[int64]string{0: "0 calls", 1: "1 call", 4805: "4\u202f805 calls"} {
		calls.Last5Minutes.Attempts = n
		if got := u.Called(adminclient.MaintenanceScopeSystem, nil); got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
	if got := u.Running(); got != "1 request" {
		t.Errorf("got %q; want 1 request", got)
	}
}
