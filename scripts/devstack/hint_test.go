package devstack

import (
	"strings"
	"testing"
)

// The message leads from a request to its receipt, with commands that work in a shell whatever the
// path of the repository is.
func TestHintLeadsToTheReceipt(t *testing.T) {
	t.Parallel()
	state := State{BaseURL: "http://one", BaseURLs: []string{"http://one"}, AdminURL: "http://two", AdminURLs: []string{"http://two"}, APIKey: "mgw_key"}
	state.OpsURLs = map[string]string{DataPlaneName(0): "http://ops"} // only the ops listener serves the documents of the public API
	for _, l := range []struct {
		layout Layout
		want   string
	}{
		{Layout{Root: "/src/my gateway", Dir: "/src/my gateway/.dev"}, "\n  .dev/bin/gwctl --dev usage list\n"},
		{Layout{Root: "/src", Dir: "/tmp/my stack"}, "\n  '/tmp/my stack/bin/gwctl' --dev usage list\n"},
	} {
		text := hint(l.layout, state, catalog{})
		for _, want := range []string{l.want, " --dev usage get REQUEST_ID\n", "http://ops/docs and http://two/docs", "make cabinet", "http://two/console/"} {
			if !strings.Contains(text, want) {
				t.Errorf("the message lacks %q:\n%s", want, text)
			}
		}
	}
}
