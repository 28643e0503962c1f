// Package chaos tests what must hold when parts of the running product end in
// the middle of their work. Its tests run one after the other, on a stack that
// they share: each waits until all is well again.
//
// The stack has four data planes and two control planes. Sessions are short,
// so that what is to wait for their end need not wait long.
package chaos

import (
	"os"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

const (
	dataPlanes = 4
	// sessionValid and sessionRest are those of the stack's sessions.
	sessionValid = "4s"
	sessionRest  = "8s"
)

func TestMain(m *testing.M) {
	os.Exit(rig.Main(m, rig.Options{
		DataPlanes: dataPlanes, ControlPlanes: 2, Links: true,
		ControlSettings: shortSessions(),
	}))
}

func shortSessions() []string {
	return []string{"MGW_SESSION_TTL=" + sessionValid, "MGW_SESSION_CLOSE_AFTER=" + sessionRest, "MGW_LEASE_REFUSAL_GRACE_PERIOD=400ms"}
}

// allVariable asks for every test; without it, those that take long are left
// out.
const allVariable = "CHAOS"

// long marks a test that takes more than a few seconds.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv(allVariable) != "all" {
		t.Skipf("takes long; %s=all runs it, as make chaos does", allVariable)
	}
}
