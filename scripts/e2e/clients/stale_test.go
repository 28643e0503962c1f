package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// make clients/update reports packages that their makers may have left: those marked as deprecated, which most renamed ones
// are, and those that have not moved for half a year. The registry is a program that answers as `npm view` does.
func TestPackagesThatMayHaveEndedAreReported(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skipf("needs Node.js: %v", err)
	}
	old, recent := time.Now().AddDate(0, 0, -200).UTC(), time.Now().AddDate(0, 0, -10).UTC()
	registry := map[string]any{
		"renamed":      map[string]any{"version": "2.0.0", "deprecated": "it is @new/name now", "time": map[string]any{"2.0.0": recent}},
		"@left/behind": map[string]any{"version": "0.73.1", "time": map[string]any{"created": old, "modified": recent, "0.73.1": old}},
		"fine":         map[string]any{"version": "1.1.0", "time": map[string]any{"1.0.0": old, "1.1.0": recent}},
		"undated":      map[string]any{"version": "1.0.0"},
	}
	dir, dependencies := t.TempDir(), map[string]string{"unknown": "1.0.0"}
	write := func(path string, content []byte) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), content, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	encode := func(v any) []byte {
		t.Helper()
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, answer := range registry {
		dependencies[name] = "1.0.0"
		write(filepath.Join("registry", name), encode(answer))
	}
	write("package.json", encode(map[string]any{"dependencies": dependencies}))
	write("bin/npm", []byte("#!/bin/sh\n[ \"$1\" = view ] && exec cat \"$REGISTRY/$2\"\n"))

	stale := exec.CommandContext(t.Context(), "node", filepath.Join(clientsDir, "stale.mjs"), dir)
	stale.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "REGISTRY="+filepath.Join(dir, "registry"))
	got, err := stale.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "@left/behind: the newest version, 0.73.1, is of " + old.Format(time.DateOnly) + ": was it renamed?\n" +
		"renamed: deprecated: it is @new/name now\n" +
		"unknown: the registry does not tell its versions\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}
