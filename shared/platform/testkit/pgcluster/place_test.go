package pgcluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The test is not parallel, because it changes sharedRoot.
func TestDataIsElsewhereIfTheUserCannotEnterTheDirectory(t *testing.T) {
	needServer(t)
	if os.Geteuid() != 0 {
		t.Skip("only root starts the server as another user")
	}
	before := sharedRoot
	t.Cleanup(func() { sharedRoot = before })
	sharedRoot = filepath.Join(openDir(t), "shared")
	dir := filepath.Join(t.TempDir(), "postgres") // only root can enter the parent

	var messages []string
	cfg := Config{Dir: dir, Progress: func(message string) { messages = append(messages, message) }}
	first := mustStart(t, cfg)
	if !strings.HasPrefix(first.Dir(), sharedRoot) {
		t.Errorf("the data is in %s; want it below %s", first.Dir(), sharedRoot)
	}
	if len(messages) == 0 || !strings.Contains(messages[0], first.Dir()) {
		t.Errorf("got messages %q; want the directory of the data", messages)
	}
	id := systemID(t, first)
	stop(t, first)

	second := mustStart(t, cfg)
	if second.Dir() != first.Dir() || systemID(t, second) != id {
		t.Errorf("the second start used %s and another cluster; want the first", second.Dir())
	}
	stop(t, second)

	// Data without a link belongs to a deleted cluster.
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	third := mustStart(t, cfg)
	if systemID(t, third) == id {
		t.Error("the third start used the cluster whose link was deleted")
	}
	stop(t, third)

	// A cluster that is created elsewhere removes data whose link is gone, and no other.
	deleted := mustStart(t, Config{Dir: filepath.Join(t.TempDir(), "deleted")})
	stop(t, deleted)
	if err := os.Remove(deleted.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	fourth := mustStart(t, Config{Dir: filepath.Join(t.TempDir(), "fourth")})
	stop(t, fourth)
	if _, err := os.Lstat(deleted.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data of the deleted link: %v; want no such file", err)
	}
	for _, c := range []*Cluster{third, fourth} {
		if _, err := os.Lstat(c.Dir()); err != nil {
			t.Errorf("the data of a link that exists: %v", err)
		}
	}

	if err := Remove(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, third.Dir()} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Remove, %s: %v; want no such file", name, err)
		}
	}
}

func TestNewClusterIsACopyOfItsTemplate(t *testing.T) {
	t.Parallel()
	needServer(t)
	first := mustStart(t, Config{Dir: filepath.Join(openDir(t), "first"), Database: "filled"})
	stop(t, first)
	second := mustStart(t, Config{Dir: filepath.Join(openDir(t), "second"), Template: first.Dir(), Database: "filled"})
	if systemID(t, first) != systemID(t, second) {
		t.Error("the second cluster is no copy of the first")
	}
}
