package console

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of routes")

// The tests in a browser read the list, so that they visit every page.
func TestListOfRoutesIsThatOfTheConsole(t *testing.T) {
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	patterns := []string{}
	for _, r := range c.routes() {
		patterns = append(patterns, r.pattern)
	}
	slices.Sort(patterns)
	list := strings.Join(patterns, "\n") + "\n"
	file := filepath.Join("testdata", "routes.txt")
	if *update {
		if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if list != string(want) {
		t.Errorf("the console has other routes than %s; run go test ./controlplane/internal/console -run %s -update", file, t.Name())
	}
}
