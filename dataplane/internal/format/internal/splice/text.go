package splice

import (
	"bytes"

	"modelgateway/dataplane/internal/jsonspan"
)

// TextLen returns how many bytes the text of the string raw has, its escapes
// decoded; 0 if raw is no string.
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
		n -= 6 - runeLen(raw[i+2:i+6])
		raw = raw[i+6:]
	}
}

// runeLen returns the bytes that a \u escape stands for in UTF-8. Each half of a
// surrogate pair counts for half of its four bytes.
func runeLen(hex []byte) int {
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

// Text returns the TextLen of the string at or after index at of text, behind white
// space only, and the index after the value there.
func Text(text []byte, at int) (n int64, end int) {
	if at = skipSpace(text, at); at == len(text) {
		return 0, at
	}
	end = skipValue(text, at)
	return TextLen(text[at:end]), end
}

// maxDepth bounds how deep Texts looks for text.
const maxDepth = 16

// Texts returns the sum of TextLen over the strings inside the value at or after index
// at of text that are the value of a member that counts, or an element of its array, and
// the index after the value.
func Texts(text []byte, at int, counts func(name []byte) bool) (n int64, end int) {
	return texts(text, skipSpace(text, at), false, counts, maxDepth)
}

func texts(text []byte, at int, counted bool, counts func([]byte) bool, depth int) (n int64, end int) {
	if at >= len(text) {
		return 0, len(text)
	}
	switch kind := jsonspan.KindOf(text[at:]); {
	case kind == jsonspan.KindObject && depth > 0:
		c := Members(text, at)
		for c.Next() {
			more, end := texts(text, c.Start(), counts(c.Name()), counts, depth-1)
			n += more
			c.Skip(end)
		}
		return n, c.Close()
	case kind == jsonspan.KindArray && depth > 0:
		it := Elements(text, at)
		for it.Next() {
			more, end := texts(text, it.Start(), counted, counts, depth-1)
			n += more
			it.Skip(end)
		}
		return n, it.Close()
	case kind == jsonspan.KindInvalid:
		return 0, len(text)
	}
	end = skipValue(text, at)
	if counted {
		n = TextLen(text[at:end])
	}
	return n, end
}
