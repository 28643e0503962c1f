package gwctl

import (
	"strings"

	"github.com/spf13/cobra"
)

// groups says what commands are about that do not stand for a tag of the
// document. A group of a single command is described by that one.
var groups = map[string]string{
	"alerts":      "The thresholds at which events about an account and its keys are sent",
	"credentials": "What the gateway proves itself to providers with",
	"deliveries":  "What was sent to webhooks, with every attempt",
	"master-key":  "What secrets rest under, and its exchange",
	"models":      "What clients can ask for, and who may",
	"pepper":      "What API keys are hashed under, and its exchange",
	"prices":      "What models cost, did cost and will cost",
	"providers":   "Where requests are sent",
	"quarantined": "Usage events that could not be settled, one by one",
	"routes":      "The ways of a model to its providers",
	"settings":    "Settings of the whole system",
	"system":      "Maintenance of the whole system",
	"video-jobs":  "Video jobs and what became of them",
}

// describe has each group say what all of its commands are about.
func describe(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if about, known := groups[cmd.Name()]; known && len(cmd.Commands()) > 1 {
			cmd.Short = about
		}
	}
}

// singular is a second name for a group, such as key for keys; the name itself
// if there is none.
func singular(name string) string {
	if stem, ok := strings.CutSuffix(name, "ies"); ok {
		return stem + "y"
	}
	if strings.HasSuffix(name, "ss") {
		return name
	}
	return strings.TrimSuffix(name, "s")
}
