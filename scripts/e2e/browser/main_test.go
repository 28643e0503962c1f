// Package browser tests the console in a real Chromium, on a running stack of two control planes and two proxies that the
// demo has filled. Without Chromium only the tests of the demo run.
package browser

import (
	"bytes"
	"flag"
	"os"
	"strconv"
	"sync"
	"testing"

	"modelgateway/scripts/demo"
	"modelgateway/scripts/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// parallel is how many tests run at once: most of them wait for something.
const parallel = 8

func run(m *testing.M) int {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		panic(err) // never: the flag exists
	}
	before := startFront()
	defer before.Close()
	identities, err := provider.start()
	if err != nil {
		panic(err)
	}
	defer identities.Close()
	defer func() {
		if chromium.stop != nil {
			chromium.stop()
		}
	}()
	return rig.Main(m, rig.Options{ControlPlanes: 2, ControlSettings: []string{
		"MGW_CONSOLE_BASE_URL=" + front.url, "MGW_CONSOLE_TOKEN_SIGN_IN=yes", "MGW_CONSOLE_ENVIRONMENT=demo",
		"MGW_CONSOLE_OIDC_CLIENT_ID=console", "MGW_ADMIN_OIDC_ISSUER=" + provider.url, "MGW_ADMIN_OIDC_AUDIENCE=console",
		"MGW_ADMIN_OIDC_CLAIM=groups", "MGW_ADMIN_OIDC_SCOPE_MAPPING=on-call=observe",
	}})
}

var filling sync.Once

// filled returns the stack with the data of a short demo.
func filled(t *testing.T) *rig.Rig {
	t.Helper()
	r := rig.Get(t)
	setTargets(r.State().AdminURLs)
	filling.Do(func() {
		var out bytes.Buffer
		d, err := demo.New(demo.Config{State: r.State(), PerDay: 40, Out: &out})
		if err == nil {
			err = d.Fill(t.Context())
		}
		var traffic *demo.Traffic
		if err == nil {
			traffic, err = d.Traffic(t.Context())
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		traffic.Play(t.Context(), 200)
	})
	return r
}
