package view_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/console/view"
)

func TestProseHasItsCodeApart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]view.Piece{
		"":                              nil,
		"Wait.":                         {{Text: "Wait."}},
		"Run `gwctl doctor` again.":     {{Text: "Run "}, {Text: "gwctl doctor", Code: true}, {Text: " again."}},
		"`<b>` opens and `never closes": {{Text: "<b>", Code: true}, {Text: " opens and "}, {Text: "never closes", Code: true}},
	} {
		if diff := cmp.Diff(want, view.Prose(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestBrowserIsNamed(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36":               "Chrome on Linux",
		"Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0":       "Edge on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18 Safari/605.1.15": "Safari on macOS",
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                              "Firefox on Linux",
		"curl/8.5.0": "curl", "<script>": "<script>", "": "",
	} {
		if got := view.Browser(agent); got != want {
			t.Errorf("%q: got %q; want %q", agent, got, want)
		}
	}
}
