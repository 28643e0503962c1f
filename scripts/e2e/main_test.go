// Package e2e tests the running product as its clients see it: the built
// binaries over HTTP, with the provider simulator behind them. Accidents have
// package chaos of their own.
package e2e

import (
	"os"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m, rig.Options{})) }
