package gwctl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/gwctl"
)

func TestTokenSourcesAndTheirPrecedence(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	server := b.env["GWCTL_SERVER"]
	delete(b.env, "GWCTL_SERVER")
	delete(b.env, "GWCTL_TOKEN")
	token := b.file("token", " from the file\n")
	b.ok("context", "add", "one", "--address", server, "--token-file", "token")
	b.ok("context", "add", "two", "--address", server, "--token-env", "MINE")
	b.ok("context", "add", "three", "--address", server, "--token-command", "printf 'from %s' command")
	b.env["MINE"] = "from the variable"

	sent := func(args ...string) string {
		t.Helper()
		b.ok(append([]string{"accounts", "list"}, args...)...)
		return strings.TrimPrefix(b.last().Header.Get("Authorization"), "Bearer ")
	}
	if got := sent(); got != "from the file" {
		t.Errorf("the first context is current: got %q", got)
	}
	b.ok("context", "use", "two")
	if got := sent(); got != "from the variable" {
		t.Errorf("after use: got %q", got)
	}
	if got := sent("--context", "three"); got != "from command" {
		t.Errorf("by flag: got %q", got)
	}
	b.env["GWCTL_CONTEXT"] = "three"
	if got := sent(); got != "from command" {
		t.Errorf("by variable: got %q", got)
	}
	if got := sent("--context", "one"); got != "from the file" {
		t.Errorf("a flag takes precedence over a variable: got %q", got)
	}
	b.env["GWCTL_TOKEN"] = "from the environment"
	if got := sent(); got != "from the environment" {
		t.Errorf("the environment's token takes precedence over the context's: got %q", got)
	}
	if got := sent("--token-file", token); got != "from the file" {
		t.Errorf("a flag's token takes precedence over the environment's: got %q", got)
	}
	want := "NAME   CURRENT  SERVER  TOKEN\none    no       S       file " + token + "\nthree  no       S       command printf 'from %s' command\ntwo    yes      S       variable MINE\n"
	if got := b.ok("context", "list"); squeeze(strings.ReplaceAll(got, server, "S")) != squeeze(want) {
		t.Errorf("list:\n%s\nwant\n%s", got, want)
	}
	b.ok("context", "remove", "two")
	delete(b.env, "GWCTL_CONTEXT")
	if code, _, _ := b.run("accounts", "list"); code != gwctl.ExitUsage {
		t.Errorf("the current context is gone: exit %d", code)
	}
}

func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestFilesReadableByOthersAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	token := b.file("token", "secret")
	b.ok("context", "add", "one", "--address", b.env["GWCTL_SERVER"], "--token-file", token)
	delete(b.env, "GWCTL_SERVER")
	delete(b.env, "GWCTL_TOKEN")
	contexts := filepath.Join(b.dir, ".config", "modelgateway", "contexts.yaml")
	for _, tt := range []struct {
		path string
		code int
	}{{token, gwctl.ExitAuth}, {contexts, gwctl.ExitUsage}} {
		if info, err := os.Stat(tt.path); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", tt.path, info.Mode(), err)
		}
		if err := os.Chmod(tt.path, 0o640); err != nil {
			t.Fatal(err)
		}
		code, _, errs := b.run("accounts", "list")
		if code != tt.code || !strings.Contains(errs, "chmod 600 "+tt.path) || strings.Contains(errs, "secret") {
			t.Errorf("%s: exit %d, %q", tt.path, code, errs)
		}
		if err := os.Chmod(tt.path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.seen) > 0 {
		t.Errorf("sent %v", b.seen)
	}
}

func TestTokenOfAContextIsNotSentToAnotherServer(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.ok("context", "add", "one", "--address", "https://elsewhere.example.com", "--token-file", b.file("token", "secret"))
	delete(b.env, "GWCTL_TOKEN")
	if code, _, errs := b.run("accounts", "list"); code != gwctl.ExitAuth || len(b.seen) > 0 {
		t.Errorf("exit %d, %q, sent %v", code, errs, b.seen)
	}
}

func TestInvalidContextsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, args := range []string{
		"context add x", "context add x --address ftp://a", "context add x --address http://a --token-env A --token-command b",
		"context add x --address http://a --token-file none/there",
		"context use x", "context remove x", "accounts list --context x",
	} {
		if code, _, errs := b.run(strings.Fields(args)...); code != gwctl.ExitUsage {
			t.Errorf("%s: exit %d, %q", args, code, errs)
		}
	}
	b.env["GWCTL_CONFIG"] = b.file("c.yaml", "contexts: {a: {server: http://a, tocken_file: x}}")
	if code, _, errs := b.run("context", "list"); code != gwctl.ExitUsage || !strings.Contains(errs, "tocken_file") {
		t.Errorf("unknown member: exit %d, %q", code, errs)
	}
}

func TestDevFlagUsesTheDevStack(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	root := b.dir
	b.dir = filepath.Join(root, "a", "b")
	if code, _, errs := b.run("--dev", "accounts", "list"); code != gwctl.ExitUsage || !strings.Contains(errs, "make run") {
		t.Errorf("exit %d, %q", code, errs)
	}
	server := b.env["GWCTL_SERVER"]
	b.env["GWCTL_SERVER"] = "http://127.0.0.1:1"
	b.dir = root
	b.file(".dev/stack.json", `{"admin_url":"`+server+`","admin_token":"dev token","pids":{}}`)
	b.dir = filepath.Join(root, "a", "b")
	b.ok("--dev", "accounts", "list")
	if got := b.last().Header.Get("Authorization"); got != "Bearer dev token" {
		t.Errorf("got %q", got)
	}
}
