package answer

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"modelgateway/dataplane/internal/jsonspan"
)

// Size is the size of a text: its bytes, and its characters. A script with long characters has as many to a token as the
// Latin one. Images are those within the text, which do not count as text.
type Size struct{ Bytes, Chars, Images int64 }

// Add adds the size of another text.
func (s *Size) Add(other Size) {
	s.Bytes, s.Chars, s.Images = s.Bytes+other.Bytes, s.Chars+other.Chars, s.Images+other.Images
}

// SizeOf returns the size of the decoded text of the string raw, zero if raw is no string. Each half of a surrogate pair
// that is written with escapes is a character.
func SizeOf(raw []byte) (sum Size) {
	if len(raw) < 2 || raw[0] != '"' {
		return Size{}
	}

	raw = raw[1 : len(raw)-1]
	for len(raw) >= minImage {
		before, after, found := cutImage(raw)
		if !found {
			break
		}
		sum.Add(sizeOf(before))
		sum.Images++
		raw = after
	}
	sum.Add(sizeOf(raw))
	return sum
}

const (
	// minImage is the length from which a text can have an image in it. Every smaller one has but a few tokens, whatever it is.
	minImage = 512
	// maxImageType bounds the media type of an image.
	maxImageType = 64
)

// cutImage cuts the first image out of a text. Servers that have no other place for the images of a model write them into its
// text, as data URLs: the model has made them with the tokens of an image, and not with those of base64.
func cutImage(text []byte) (before, after []byte, found bool) {
	const mark = ";base64,"
	i := bytes.Index(text, []byte("data:image"))
	if i < 0 {
		return text, nil, false
	}
	from := bytes.Index(text[i:min(i+maxImageType, len(text))], []byte(mark))
	if from < 0 {
		return text, nil, false
	}
	end := i + from + len(mark)
	for end < len(text) && isBase64(text[end]) {
		end++
	}
	return text[:i], text[end:], true
}

// IsPicture reports whether a value is an image in base64, or the address of one: a text that is not blank.
func IsPicture(raw []byte) bool {
	return jsonspan.KindOf(raw) == jsonspan.KindString && len(raw) > 1 && len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
}

// isBase64 reports whether a byte of a JSON string may be one of base64; a slash may be escaped.
func isBase64(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '+' || c == '/' || c == '=' || c == '-' || c == '_' || c == '\\'
}

// sizeOf is SizeOf for a text without images, which is the inside of a string.
func sizeOf(raw []byte) Size {
	length, more := len(raw), continuations(raw)
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 >= len(raw) {
			return Size{Bytes: int64(max(length, 0)), Chars: int64(max(length-more, 0))}
		}
		if raw[i+1] != 'u' || i+6 > len(raw) {
			length--
			raw = raw[i+2:]
			continue
		}
		n := escapedRuneLen(raw[i+2 : i+6])
		length -= 6 - n
		more += n - 1
		raw = raw[i+6:]
	}
}

// continuations counts the bytes of characters after their first ones, eight at a time.
func continuations(text []byte) (n int) {
	const high = 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		word := binary.LittleEndian.Uint64(text)
		n += bits.OnesCount64(word & ^(word << 1) & high)
	}
	for _, c := range text {
		if c&0xC0 == 0x80 {
			n++
		}
	}
	return n
}

// TextLen returns the length of the decoded text of the string raw in bytes, 0 if raw is no string.
func TextLen(raw []byte) int64 { return SizeOf(raw).Bytes }

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

// StringAt returns the value at or after index at of text.
func StringAt(text []byte, at int) []byte {
	if at = jsonspan.SkipSpace(text, at); at == len(text) {
		return nil
	}
	return text[at:jsonspan.SkipValue(text, at)]
}

// maxTextDepth bounds how deep SumTexts searches.
const maxTextDepth = 16

// TextSum is the result of SumTexts.
type TextSum struct {
	// Size is the sum of SizeOf over the counted strings.
	Size
	// Start and End enclose the last counted string that is not empty.
	Start, End int
}

// AddString counts the string text[start:end].
func (s *TextSum) AddString(text []byte, start, end int) {
	if n := SizeOf(text[start:end]); n.Bytes > 0 || n.Images > 0 {
		s.Size.Add(n)
		s.Start, s.End = start, end
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
		s.AddString(text, at, end)
	}

	return end
}
