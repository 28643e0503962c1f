package pgcluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The test changes sharedRoot, so it does not run beside others.
func TestDataMovesOutOfAClosedDirectory(t *testing.T) {
	needServer(t)
	if os.Geteuid() != 0 {
		t.Skip("only root starts the server as another user")
	}
	before := sharedRoot
	t.Cleanup(func() { sharedRoot = before })
	sharedRoot = filepath.Join(openDir(t), "shared")
	dir := filepath.Join(t.TempDir(), "postgres") // the parent is root's alone

	var said []string
	cfg := Config{Dir: dir, Progress: func(message string) { said = append(said, message) }}
	first := mustStart(t, cfg)
	if !strings.HasPrefix(first.Dir(), sharedRoot) {
		t.Errorf("the data lies in %s; want it below %s", first.Dir(), sharedRoot)
	}
	if len(said) == 0 || !strings.Contains(said[0], first.Dir()) {
		t.Errorf("told %q; want the place named", said)
	}
	id := systemID(t, first)
	stop(t, first)

	second := mustStart(t, cfg)
	if second.Dir() != first.Dir() || systemID(t, second) != id {
		t.Errorf("the second start used %s and another cluster; want the first", second.Dir())
	}
	stop(t, second)

	// Without the link the data is the rest of something deleted.
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	third := mustStart(t, cfg)
	if systemID(t, third) == id {
		t.Error("a cluster whose link was deleted came back")
	}
	stop(t, third)
	if err := Remove(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, third.Dir()} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Remove, %s: %v; want it gone", name, err)
		}
	}
}
