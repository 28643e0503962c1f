package jsonspan

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

func TestRunOfPlainTextEndsAtTheFirstSpecialByte(t *testing.T) {
	t.Parallel()
	const longest = 3*plainBlock + 9
	for n := range longest {
		text := bytes.Repeat([]byte("~"), n)
		for at := range n {
			for c := range 256 {
				text[at] = byte(c)
				want := n
				if c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
					want = at
				}
				if got := skipPlain(text, 0); got != want {
					t.Fatalf("%d bytes with %#x at %d: got %d; want %d", n, c, at, got, want)
				}
			}
			text[at] = '~'
		}
		for i := range n {
			if got := skipPlain(text, i); got != n {
				t.Fatalf("%d bytes from %d: got %d", n, i, got)
			}
		}
	}
}
