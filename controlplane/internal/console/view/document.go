package view

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Token is a piece of a text; Kind is its role for colours: "key", "text", "number", "word", "del", "add" or "".
type Token struct{ Kind, Text string }

// tokens matches the pieces of indented JSON that have a colour.
var tokens = regexp.MustCompile(`("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\b[0-9][0-9.eE+-]*`)

// JSON returns a value as indented JSON.
func JSON(v any) []Token {
	text := indented(v)
	var all []Token
	at := 0
	for _, m := range tokens.FindAllStringSubmatchIndex(text, -1) {
		if m[0] > at {
			all = append(all, Token{"", text[at:m[0]]})
		}
		kind, end := "number", m[1]
		switch {
		case m[4] >= 0:
			kind, end = "key", m[3]
		case m[2] >= 0:
			kind = "text"
		case m[6] >= 0:
			kind = "word"
		}
		all = append(all, Token{kind, text[m[0]:end]})
		at = end
	}

	return append(all, Token{"", text[at:]})
}

func indented(v any) string {
	if v == nil {
		return ""
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Line is a line of a difference: Kind is "same", "del" or "add". Tokens with that kind are the words that differ.
type Line struct {
	Kind   string
	Tokens []Token
}

// maxDiff bounds the lines that are compared one by one; larger values are shown whole.
const maxDiff = 2000

// Diff returns the lines of two values as JSON, with what was removed and added. nil has no lines.
func Diff(before, after any) []Line { return DiffText(indented(before), indented(after)) }

// DiffText returns the lines of two texts, with what was removed and added.
func DiffText(before, after string) []Line {
	a, b := lines(before), lines(after)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}

	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}

	all := whole("same", a[:head])
	x, y := a[head:len(a)-tail], b[head:len(b)-tail]
	if len(x) > maxDiff || len(y) > maxDiff {
		all = append(append(all, whole("del", x)...), whole("add", y)...)
	} else {
		all = append(all, compare(x, y)...)
	}

	return mark(append(all, whole("same", a[len(a)-tail:])...))
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func whole(kind string, texts []string) []Line {
	all := make([]Line, len(texts))
	for i, text := range texts {
		all[i] = Line{kind, []Token{{"", text}}}
	}
	return all
}

// compare aligns lines by their longest common subsequence.
func compare(a, b []string) []Line {
	length := make([][]int, len(a)+1)
	for i := range length {
		length[i] = make([]int, len(b)+1)
	}

	for i, x := range slices.Backward(a) {
		for j, y := range slices.Backward(b) {
			if x == y {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}

	var all []Line
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			all = append(all, whole("same", a[i:i+1])...)
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			all = append(all, whole("del", a[i:i+1])...)
			i++
		default:
			all = append(all, whole("add", b[j:j+1])...)
			j++
		}
	}

	return all
}

// mark marks the words that differ where as many lines were added as were removed before them.
func mark(all []Line) []Line {
	for i := 0; i < len(all); {
		removed, added := run(all[i:], "del"), 0
		if removed > 0 {
			added = run(all[i+removed:], "add")
		}
		if removed == added {
			for k := range removed {
				markPair(&all[i+k], &all[i+removed+k])
			}
		}
		i += max(removed+added, 1)
	}
	return all
}

func run(all []Line, kind string) int {
	n := slices.IndexFunc(all, func(l Line) bool { return l.Kind != kind })
	if n < 0 {
		return len(all)
	}
	return n
}

// markPair divides two lines into what they have in common at their ends, and what differs.
func markPair(old, changed *Line) {
	a, b := []rune(old.Tokens[0].Text), []rune(changed.Tokens[0].Text)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	if head+tail == 0 {
		return
	}
	old.Tokens = split(a, "del", head, tail)
	changed.Tokens = split(b, "add", head, tail)
}

func split(text []rune, kind string, head, tail int) []Token {
	return []Token{{"", string(text[:head])}, {kind, string(text[head : len(text)-tail])}, {"", string(text[len(text)-tail:])}}
}
