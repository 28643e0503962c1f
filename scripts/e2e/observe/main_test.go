// Package observe tests the alerts and dashboards of the Helm chart on the running product: a
// real Prometheus scrapes it.
package observe

import (
	"os"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m, rig.Options{})) }
