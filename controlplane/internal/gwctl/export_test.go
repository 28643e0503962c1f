package gwctl

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"modelgateway/shared/platform/apidoc"
)

// CommandLines returns the examples of all commands, by operation and command.
func CommandLines(t *testing.T, document *apidoc.Document) map[string]map[string]string {
	t.Helper()
	tool := newTool(Config{EnvFunc: func(string) string { return "" }, Document: document})
	found := map[string]map[string]string{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if id := cmd.Annotations[operationAnnotation]; id != "" {
			if found[id] == nil {
				found[id] = map[string]string{}
			}
			found[id][strings.TrimPrefix(cmd.CommandPath(), "gwctl ")] = strings.TrimSpace(cmd.Example)
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(tool.root)
	return found
}

// Group is the help of a group of commands.
type Group struct {
	Short    string
	Commands int
	// Described is set if the text comes from neither a tag nor a single command.
	Described bool
}

// Groups returns the groups derived from a document.
func Groups(t *testing.T, document *apidoc.Document) map[string]Group {
	t.Helper()
	tool := newTool(Config{EnvFunc: func(string) string { return "" }, Document: document})
	found := map[string]Group{}
	for _, cmd := range tool.root.Commands() {
		own := cmd.HasSubCommands()
		for _, child := range cmd.Commands() {
			own = own && child.Annotations[operationAnnotation] != ""
		}
		if _, described := groups[cmd.Name()]; own || described {
			found[cmd.Name()] = Group{cmd.Short, len(cmd.Commands()), described}
		}
	}
	return found
}

// CheckLine reports what is wrong with a command line after the word gwctl: the command, a flag or
// the number of arguments. It calls nothing.
func CheckLine(t *testing.T, document *apidoc.Document, words []string) error {
	t.Helper()
	tool := newTool(Config{EnvFunc: func(string) string { return "" }, Document: document})
	cmd, rest, err := tool.root.Find(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if !cmd.Runnable() {
		return fmt.Errorf("%s is no command", strings.Join(words, " "))
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	return cmd.ValidateRequiredFlags()
}
