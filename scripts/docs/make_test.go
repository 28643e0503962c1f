package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMakefileWorksInAFolderWithSpaces: make reads the Makefile, and every target that people use has commands, wherever the
// repository is.
func TestMakefileWorksInAFolderWithSpaces(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a folder with spaces")
	for _, name := range []string{"Makefile", "go.work"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(read(t, name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"help", "run", "build", "images", "bench/proxy"} {
		cmd := exec.CommandContext(t.Context(), "make", "--dry-run", target)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "MAKEFLAGS=") // not those of a make that runs this test
		out, err := cmd.CombinedOutput()
		if text := string(out); err != nil || strings.TrimSpace(text) == "" || strings.Contains(text, "warning:") {
			t.Errorf("make %s: %v\n%s", target, err, text)
		}
	}
}
