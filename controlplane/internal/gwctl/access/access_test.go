package access_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/gwctl/access"
)

func contexts(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "modelgateway", "contexts.yaml")
	file := access.File{Current: "test", Contexts: map[string]access.Context{
		"test": {Server: "https://test.example", TokenEnv: "TEST_TOKEN"},
		"live": {Server: "https://live.example", TokenCommand: "echo of the command"},
	}}
	if err := file.Save(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSelectionTakesPrecedenceOverTheEnvironment(t *testing.T) {
	t.Parallel()
	path := contexts(t)
	for name, c := range map[string]struct {
		selection    access.Selection
		env          map[string]string
		server, from string
	}{
		"nothing": {
			access.Selection{}, nil, "https://test.example", "variable TEST_TOKEN",
		},
		"the environment": {
			access.Selection{}, map[string]string{"GWCTL_CONTEXT": "live"}, "https://live.example", "command echo of the command",
		},
		"a flag": {
			access.Selection{Context: "test"}, map[string]string{"GWCTL_CONTEXT": "live"}, "https://test.example", "variable TEST_TOKEN",
		},
		"a token": {
			access.Selection{Context: "live"}, map[string]string{"GWCTL_TOKEN": "x"}, "https://live.example", "variable GWCTL_TOKEN",
		},
		// The token of the current context may be for another server.
		"an address": {
			access.Selection{Server: "https://other.example"}, nil, "https://other.example", "variable GWCTL_TOKEN",
		},
	} {
		got, err := access.Find(path, c.selection, func(name string) string { return c.env[name] })
		if err != nil || got.Server != c.server || got.Source() != c.from {
			t.Errorf("%s: got %s with the token of %s, %v; want %s, %s", name, got.Server, got.Source(), err, c.server, c.from)
		}
	}
	if _, err := access.Find(path, access.Selection{Context: "none"}, os.Getenv); err == nil || !strings.Contains(err.Error(), "unknown context") {
		t.Errorf("an unknown context: got %v", err)
	}
}

func TestFilesThatOthersCanReadAreRefused(t *testing.T) {
	t.Parallel()
	path := contexts(t)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := access.Load(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v; want what to do", err)
	}
}

func TestTokenIsOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"secret": "secret", "secret\n": "secret", "": "", "two\nlines": ""} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := (&access.Context{TokenFile: path}).Token(t.Context(), os.Getenv)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "lines\n") {
			t.Errorf("the error contains the token: %v", err)
		}
	}
}
