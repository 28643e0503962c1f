package gwctl

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/apidoc"
)

// CommandLines returns the example of every command of every operation of a
// document, by operation and by what the command is called.
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
