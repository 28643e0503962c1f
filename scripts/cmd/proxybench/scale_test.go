package main

import (
	"os"
	"strings"
	"testing"
)

// TestMain runs the child processes, which are this program with other arguments.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-child" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestScaleIsMeasuredOnASmallInstallation(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := measureScale(t.Context(), size{keys: 1500, used: 40, accounts: 10, models: 5, proxies: 2}, &out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"size", "creating an account", "importing keys", "Postgres, size of a key", "request, one key, first requests", "request, one key |",
		"request, each with another key, for the first time", "request, each with another key, known", "growth of their memory",
		"a proxy, memory", "control plane, memory", "revocation", "new model", "start of a proxy",
	} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("there is no row %q", row)
		}
	}
	if strings.Contains(out.String(), "NaN") || t.Failed() {
		t.Logf("%s", &out)
		t.Fail()
	}
}
