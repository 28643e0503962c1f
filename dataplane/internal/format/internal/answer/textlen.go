package answer

import (
	"bytes"

	"modelgateway/dataplane/internal/jsonspan"
)

// TextLen returns the length of the decoded text of the string raw in bytes, 0 if raw is no string.
func TextLen(raw []byte) int64 {
	if len(raw) < 2 || raw[0] != '"' {
		return 0
	}
	raw = raw[1 : len(raw)-1]
	n := len(raw)
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 >= len(raw) {
			return int64(max(n, 0))
		}
		if raw[i+1] != 'u' || i+6 > len(raw) {
			n--
			raw = raw[i+2:]
			continue
		}
		n -= 6 - escapedRuneLen(raw[i+2:i+6])
		raw = raw[i+6:]
	}
}

// escapedRuneLen returns the length of a \u escape in UTF-8. Each half of a surrogate pair counts for two of its four
// bytes.
func escapedRuneLen(hex []byte) int {
	switch {
	case hex[0] == '0' && hex[1] == '0' && hex[2] < '8':
		return 1
	case hex[0] == '0' && hex[1] < '8':
		return 2
	case hex[0]|0x20 == 'd' && hex[1] >= '8':
		return 2
	}
	return 3
}

// TextLenAt returns the TextLen of the string at index at of text, perhaps after white space, and the index after the
// value there.
func TextLenAt(text []byte, at int) (n int64, end int) {
	if at = jsonspan.SkipSpace(text, at); at == len(text) {
		return 0, at
	}
	end = jsonspan.SkipValue(text, at)
	return TextLen(text[at:end]), end
}

// maxTextDepth bounds how deep SumTexts searches.
const maxTextDepth = 16

// TextSum is the result of SumTexts.
type TextSum struct {
	// Len is the sum of TextLen over the counted strings.
	Len int64
	// Start and End enclose the last counted string that is not empty.
	Start, End int
}

// Add counts the string text[start:end].
func (s *TextSum) Add(text []byte, start, end int) {
	if n := TextLen(text[start:end]); n > 0 {
		s.Len, s.Start, s.End = s.Len+n, start, end
	}
}

// SumTexts adds to sum the strings inside the value at or after index at of text that are the value of a member for
// whose name counts returns true, or elements of such an array. It returns the index after the value.
func SumTexts(sum *TextSum, text []byte, at int, counts func(name []byte) bool) (end int) {
	return sum.texts(text, jsonspan.SkipSpace(text, at), false, counts, maxTextDepth)
}

func (s *TextSum) texts(text []byte, at int, counted bool, counts func([]byte) bool, depth int) (end int) {
	if at >= len(text) {
		return len(text)
	}
	switch kind := jsonspan.KindOf(text[at:]); {
	case kind == jsonspan.KindObject && depth > 0:
		c := jsonspan.ObjectAt(text, at)
		for c.Next() {
			c.SetEnd(s.texts(text, c.Start(), counts(c.Name()), counts, depth-1))
		}
		return c.SkipRest()
	case kind == jsonspan.KindArray && depth > 0:
		it := jsonspan.ArrayAt(text, at)
		for it.Next() {
			it.SetEnd(s.texts(text, it.Start(), counted, counts, depth-1))
		}
		return it.SkipRest()
	case kind == jsonspan.KindInvalid:
		return len(text)
	}
	end = jsonspan.SkipValue(text, at)
	if counted {
		s.Add(text, at, end)
	}
	return end
}
