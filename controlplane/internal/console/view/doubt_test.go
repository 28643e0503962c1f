package view_test

import (
	"strings"
	"testing"

	"modelgateway/controlplane/internal/console/view"
)

func TestEveryDoubtIsASentence(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{
		"missing", "interrupted", "unreadable", "no_input", "low_input", "low_output", "high_input", "high_output", "high_other", "unpriced", "ambiguous",
	} {
		if got := view.Doubt(reason); len(got) < 20 || strings.Contains(got, "_") || !strings.HasSuffix(got, ".") {
			t.Errorf("%s: got %q; want a sentence", reason, got)
		}
	}
	if got := view.Doubt("new"); got != "new." {
		t.Errorf("a reason of a newer proxy: got %q", got)
	}
}
