package gwctl

import (
	"strings"

	"github.com/spf13/cobra"
)

// groups has the help texts of command groups that correspond to no tag of the API document. A group with one command
// has the text of that command.
var groups = map[string]string{ //nolint:gosec // G101: help texts
	"alerts":      "Thresholds of events about low balances and spend limits",
	"credentials": "Provider credentials",
	"deliveries":  "Webhook deliveries and their attempts",
	"master-key":  "The master key, which encrypts stored secrets, and its rotation",
	"models":      "Models and the accounts that may use them",
	"pepper":      "The pepper of the API key hashes, and its rotation",
	"prices":      "Prices of models: past, current and scheduled",
	"providers":   "Providers",
	"quarantined": "Single usage events in quarantine",
	"routes":      "Routes from models to providers",
	"settings":    "System-wide settings",
	"system":      "System-wide maintenance",
	"video-jobs":  "Video jobs",
}

// describe sets the help texts of the groups.
func describe(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if about, known := groups[cmd.Name()]; known && len(cmd.Commands()) > 1 {
			cmd.Short = about
		}
	}
}

// singular returns a second name for a group, such as key for keys, or the name itself if there is none.
func singular(name string) string {
	if stem, ok := strings.CutSuffix(name, "ies"); ok {
		return stem + "y"
	}
	if strings.HasSuffix(name, "ss") {
		return name
	}
	return strings.TrimSuffix(name, "s")
}
