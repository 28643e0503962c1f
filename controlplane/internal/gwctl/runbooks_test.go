package gwctl_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/gwctl"
)

// shownCommand finds the commands in a document: in lines of code, and between backquotes.
var shownCommand = regexp.MustCompile("(?m)^ {4,}(gwctl .*)$|`(gwctl [^`]*)`")

// TestCommandsOfRunbooksAreCorrect runs every command that a runbook shows: its name, arguments and flags must be accepted.
func TestCommandsOfRunbooksAreCorrect(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../../docs/operations/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shownCommand.FindAllStringSubmatch(string(text), -1) {
			line := strings.Join(strings.Fields(m[1]+m[2]), " ")
			line, _, _ = strings.Cut(line, " > ")
			words := split(line)
			if words[1] == "--dev" { // it needs a running dev stack
				continue
			}
			b := setup(t, nil)
			for _, name := range []string{"catalog.yaml", "credential.json", "prices.json"} {
				b.file(name, "{}")
			}
			b.file("price.yaml", `{"price": {"input": "0.12", "output": "0.40"}}`)
			b.file("secret.txt", "a secret")
			commands++
			if code, _, errs := b.run(words[1:]...); code == gwctl.ExitUsage {
				t.Errorf("%s: %s: %s", filepath.Base(path), line, errs)
			}
		}
	}
	if commands < 50 {
		t.Errorf("found only %d commands", commands)
	}
}
