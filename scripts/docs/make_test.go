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

// make test/repeat needs no variable but the number of rounds, and lists a test that failed in one of them.
func TestRepeatListsWhatFailed(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../repeat.sh")
	if err != nil {
		t.Fatal(err)
	}
	for outcome, want := range map[string]string{"pass": "1 of 1 rounds passed", "fail": "1 a/package TestOfIt"} {
		dir := t.TempDir()
		text := "#!/bin/sh\necho '{\"Action\":\"" + outcome + "\",\"Package\":\"a/package\",\"Test\":\"TestOfIt\"}' >\"$RESULTS/events.json\"\n" +
			"test " + outcome + " = pass\n"
		if err := os.WriteFile(filepath.Join(dir, "make"), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), script, "1")
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "TMPDIR=" + dir}
		out, err := cmd.CombinedOutput()
		if (err == nil) != (outcome == "pass") || !strings.Contains(string(out), want) {
			t.Errorf("all tests %s: got %v\n%s", outcome, err, out)
		}
	}
}
