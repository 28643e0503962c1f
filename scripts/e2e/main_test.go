// Package e2e tests the running product as its clients see it: the built
// binaries over HTTP, with the provider simulator behind them. Failures of
// processes and networks are tested in package chaos.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// parallel is how many tests run at once: most of them wait for something.
const parallel = 16

// run runs the tests and then fails if any response did not conform to the API
// document. When all tests ran, every documented response must have occurred.
func run(m *testing.M) int {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		panic(err) // never: the flag exists
	}
	checked, err := newConformance()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	rig.Observe(checked.observe)
	code := rig.Main(m, rig.Options{})
	faults := checked.report(code == 0 && allRan())
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, "API document:", fault)
	}
	if len(faults) > 0 {
		return max(code, 1)
	}
	return code
}

// allRan reports whether no flag has selected tests.
func allRan() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.short"} {
		if v := flag.Lookup(name).Value.String(); v != "" && v != "false" {
			return false
		}
	}
	return true
}
