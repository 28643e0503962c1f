package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func flat(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(map[string]string{"same": " ", "del": "-", "add": "+"}[l.Kind])
		for _, t := range l.Tokens {
			if t.Kind != "" {
				b.WriteString("[" + t.Text + "]")
			} else {
				b.WriteString(t.Text)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestDiffMarksTheWordsThatDiffer(t *testing.T) {
	t.Parallel()
	got := flat(Diff(map[string]any{"a": 1, "name": "one", "same": true}, map[string]any{"name": "once", "same": true, "z": []int{1}}))
	want := " {\n-  \"a\": 1,\n-  \"name\": \"one\",\n-  \"same\": true\n+  \"name\": \"once\",\n+  \"same\": true,\n+  \"z\": [\n+    1\n+  ]\n }\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = flat(DiffText("input 0.10\noutput 2", "input 0.12\noutput 2"))
	if want := "-input 0.1[0]\n+input 0.1[2]\n output 2\n"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	if got := flat(Diff(nil, "x")); got != "+\"x\"\n" {
		t.Errorf("created: got %q", got)
	}
	if got := Diff(nil, nil); len(got) != 0 {
		t.Errorf("nothing: got %v", got)
	}
}

func TestJSONKeepsItsTextAndColoursItsPieces(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	kinds := map[string]string{}
	for _, token := range JSON(map[string]any{"amount": "12.340000000000000001", "n": -7, "ok": true, "odd": `a "b": <c>`}) {
		text.WriteString(token.Text)
		kinds[token.Text] = token.Kind
	}
	if want := "{\n  \"amount\": \"12.340000000000000001\",\n  \"n\": -7,\n  \"odd\": \"a \\\"b\\\": <c>\",\n  \"ok\": true\n}"; text.String() != want {
		t.Errorf("got %s", text.String())
	}
	for piece, kind := range map[string]string{`"amount"`: "key", `"12.340000000000000001"`: "text", "-7": "number", "true": "word", `"a \"b\": <c>"`: "text"} {
		if kinds[piece] != kind {
			t.Errorf("%s is %q; want %q", piece, kinds[piece], kind)
		}
	}
}
