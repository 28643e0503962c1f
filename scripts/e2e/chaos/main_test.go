// Package chaos tests the running product while its parts are killed, paused or cut off. The
// tests run one after the other on a shared stack, and each waits until the stack is healthy
// again.
//
// The stack has four data planes and two control planes. Sessions are short, so that tests
// do not wait long for their expiry.
package chaos

import (
	"os"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

const (
	dataPlanes = 4
	// sessionWindow is the window of the stack's sessions.
	sessionWindow = "4s"
)

func TestMain(m *testing.M) {
	os.Exit(rig.Main(m, rig.Options{
		DataPlanes: dataPlanes, ControlPlanes: 2, Links: true,
		ControlSettings: shortSessions(),
	}))
}

func shortSessions() []string {
	return []string{"MGW_SESSION_WINDOW=" + sessionWindow}
}
