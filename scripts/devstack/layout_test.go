package devstack

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newLayout returns the layout of an empty stack.
func newLayout(t *testing.T) Layout {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := Layout{Root: root, Dir: filepath.Join(root, ".dev")}
	if err := l.make(); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestFindLayout(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	below := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := FindLayout(below, ".dev"); err == nil {
		t.Error("found a repository where there is none")
	}
	if err := os.WriteFile(filepath.Join(root, "go.work"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{".dev": filepath.Join(root, ".dev"), "/var/x": "/var/x"} {
		got, err := FindLayout(below, dir)
		if err != nil || got != (Layout{Root: root, Dir: want}) {
			t.Errorf("%s: got %v, %v; want %s", dir, got, err, want)
		}
	}
}

func TestOneStackAtATime(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	release, err := l.lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.lock(); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("got %v; want an error about a running stack", err)
	}
	release()
	release, err = l.lock()
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	release()
}

func TestSecretsAreGeneratedOnceAndPrivate(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	first, err := l.loadSecrets()
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.loadSecrets()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the second run has different secrets:\n%s", diff)
	}
	if len(first.Pepper) < 16 || len(first.AdminToken) < 16 || first.MasterKey == first.FleetKey {
		t.Errorf("too short, or not random: %+v", first)
	}
	files, err := filepath.Glob(l.secret("*"))
	if err != nil || len(files) != 9 {
		t.Fatalf("got %q, %v; want nine files", files, err)
	}
	for _, file := range append(files, l.secret("")) {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, %v; want only the user to have access", file, info.Mode(), err)
		}
	}
}

func TestWriteFileReplaces(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"a long first text", "short"} {
		if err := writeFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); string(got) != text || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, text)
		}
	}
	if names, err := filepath.Glob(filepath.Join(filepath.Dir(name), ".*")); len(names) > 0 || err != nil {
		t.Errorf("got files %q, %v; want no temporary file", names, err)
	}
	if err := writeFile(filepath.Join(name, "below a file"), nil); err == nil {
		t.Error("writing below a file succeeded")
	}
}

func TestCleanRemovesTheDirectoryOfAStoppedStack(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	release, err := l.lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := Clean(t.Context(), l); err == nil {
		t.Error("Clean succeeded for a running stack")
	}
	release()
	for range 2 {
		if err := Clean(t.Context(), l); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(l.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v; want no directory", err)
		}
	}
}
