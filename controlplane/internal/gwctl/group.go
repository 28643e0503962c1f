package gwctl

import (
	"strings"

	"github.com/spf13/cobra"
)

// groups has the help texts of command groups that correspond to no tag of the API document. A group with one command
// has the text of that command.
var groups = map[string]string{ //nolint:gosec // G101: help texts
	"alerts":           "Thresholds of events about low balances and spend limits",
	"console-sessions": "Sessions of people in the console",
	"credentials":      "Provider credentials",
	"credits":          "Money given to accounts, and what became of it",
	"deliveries":       "Webhook deliveries and their attempts",
	"ledger-checks":    "Runs of ledger checks",
	"margin":           "What requests were charged and what they cost the operator",
	"master-key":       "The master key, which encrypts stored secrets, and its rotation",
	"models":           "Models and the accounts that may use them",
	"pepper":           "The pepper of the API key hashes, and its rotation",
	"prices":           "Prices of models: past, current and scheduled",
	"providers":        "Providers",
	"quarantine":       "Usage events that could not be settled",
	"requests":         "Requests: those that end now, and an explanation of one that might come",
	"usage-months":     "Closed months of usage, and whether they were exported",
	"routes":           "Routes from models to providers",
	"settings":         "System-wide settings",
	"system":           "System-wide maintenance",
	"video-jobs":       "Video jobs",
}

// section is a part of the list of commands in the help.
type section struct {
	id, title string
	commands  []string
}

var sections = []section{
	{"customers", "Customers:", []string{
		"account-pools", "accounts", "alerts", "balance", "credits", "grants", "keys", "ledger", "ledger-books",
		"limit-windows", "limits", "margin", "projects", "receipts", "statements",
		"usage", "usage-months", "usage-totals",
	}},
	{"catalog", "Catalog:", []string{"catalog", "credentials", "models", "prices", "providers", "routes", "settings"}},
	{
		"operations",
		"Operations:",
		[]string{
			"bills",
			"deliveries",
			"diagnosis",
			"doctor",
			"events",
			"ledger-checks",
			"maintenance",
			"nats-permissions",
			"proxies",
			"quarantine",
			"refusals",
			"requests",
			"search",
			"system",
			"traffic",
			"video-jobs",
			"webhooks",
		},
	},
	{"security", "Security:", []string{"audit", "console-sessions", "hash-only-keys", "identity", "master-key", "pepper", "tokens"}},
	{"tool", "This tool:", []string{"completion", "context", "help", "version"}},
}

// arrange puts the commands into sections. A command without one is listed at the end.
func arrange(root *cobra.Command) {
	for _, s := range sections {
		root.AddGroup(&cobra.Group{ID: s.id, Title: s.title})
		for _, name := range s.commands {
			if cmd := find(root, name); cmd != nil {
				cmd.GroupID = s.id
			}
		}
	}
	root.SetHelpCommandGroupID("tool")
	root.SetCompletionCommandGroupID("tool")
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
	if strings.HasSuffix(name, "ss") || strings.HasSuffix(name, "is") {
		return name
	}
	return strings.TrimSuffix(name, "s")
}
