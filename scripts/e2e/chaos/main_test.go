// Package chaos tests what must hold when parts of the running product end in
// the middle of their work. Its tests run one after the other, on a stack that
// they share: each waits until all is well again.
package chaos

import (
	"os"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }
