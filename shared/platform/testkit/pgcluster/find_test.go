package pgcluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       int
		wantErr    bool
	}{
		{name: "debian", text: "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", want: 15},
		{name: "plain", text: "postgres (PostgreSQL) 18.0", want: 18},
		{name: "beta", text: "postgres (PostgreSQL) 19beta1\n", want: 19},
		{name: "other program", text: "postgres 15", wantErr: true},
		{name: "no number", text: "postgres (PostgreSQL) devel", wantErr: true},
		{name: "empty", text: "", wantErr: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseVersion(tt.text)
			if got != tt.want || (err != nil) != tt.wantErr {
				t.Errorf("parseVersion(%q) = %d, %v; want %d, error %t", tt.text, got, err, tt.want, tt.wantErr)
			}
		})
	}
}

// install creates a directory that resembles an installation of the version.
func install(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		script := "#!/bin/sh\necho '" + name + " (PostgreSQL) " + version + "'\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindPrefersPathThenTheNewest(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, version := range []string{"9", "14", "16", "15"} {
		install(t, filepath.Join(root, "lib", version, "bin"), version+".1")
	}
	inPath := install(t, filepath.Join(root, "path"), "14.2")
	half := filepath.Join(root, "half")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	pattern := filepath.Join(root, "lib", "*", "bin")
	tests := []struct {
		name           string
		dirs, patterns []string
		want           Binaries
	}{
		{"path wins", []string{inPath}, []string{pattern}, Binaries{inPath, 14}},
		{"newest outside path", nil, []string{pattern}, Binaries{filepath.Join(root, "lib", "16", "bin"), 16}},
		{"incomplete in path", []string{half}, []string{pattern}, Binaries{filepath.Join(root, "lib", "16", "bin"), 16}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := find(tt.dirs, tt.patterns)
			if err != nil || got != tt.want {
				t.Errorf("find(%q, %q) = %v, %v; want %v", tt.dirs, tt.patterns, got, err, tt.want)
			}
		})
	}
}

func TestNotFoundErrorContainsInstructions(t *testing.T) {
	t.Parallel()
	old := install(t, filepath.Join(t.TempDir(), "old"), "13.5")
	_, err := find([]string{old}, []string{filepath.Join(t.TempDir(), "*")})
	if _, ok := errors.AsType[*NotFoundError](err); !ok {
		t.Fatalf("got %v; want a NotFoundError", err)
	}
	for _, want := range []string{"apt-get install -y", BinaryVariable, old, "version 13, older than 14"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q:\n%v", want, err)
		}
	}
}

func TestFindUsesTheVariable(t *testing.T) {
	dir := install(t, t.TempDir(), "17.0")
	t.Setenv(BinaryVariable, dir)
	if got, err := Find(); err != nil || got != (Binaries{dir, 17}) {
		t.Errorf("got %v, %v; want %s", got, err, dir)
	}
	t.Setenv(BinaryVariable, filepath.Join(dir, "nowhere"))
	if got, err := Find(); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), BinaryVariable) {
		t.Errorf("got %v, %v; want ErrUnusable with the name of the variable", got, err)
	}
}

func TestPathDirsFollowsLinks(t *testing.T) {
	dir := install(t, filepath.Join(t.TempDir(), "real"), "15.1")
	links := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "postgres"), filepath.Join(links, "postgres")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", links)
	if got, err := find(pathDirs(), nil); err != nil || got != (Binaries{dir, 15}) {
		t.Errorf("got %v, %v; want %s", got, err, dir)
	}
}
