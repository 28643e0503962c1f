package format

import (
	"strings"
	"testing"
)

func TestLabelRejectsLongAndUnprintableTexts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "1024x1024": "1024x1024", "größer": "größer", "a b": "a b",
		"a\x00": "", "a\nb": "", "a\x7f": "", "a\xff": "", "\u0085": "",
		strings.Repeat("x", maxLabel): strings.Repeat("x", maxLabel), strings.Repeat("x", maxLabel+1): "",
	} {
		if got := Label([]byte(text)); got != want {
			t.Errorf("%.20q: got %.20q; want %.20q", text, got, want)
		}
	}
}
