package jsonspan

import "bytes"

// The functions below skip values without checking them. In a text that Parse has not accepted they may stop anywhere,
// but they never panic and always return.

// SkipValue returns the index after the value at i; i itself if there is none.
func SkipValue(raw []byte, i int) int {
	switch KindOf(raw[i:]) {
	case KindString:
		return SkipString(raw, i)
	case KindObject, KindArray:
		return skipContainer(raw, i)
	default:
		return skipScalar(raw, i)
	}
}

// skipScalar returns the index after the number or the word at i.
func skipScalar(raw []byte, i int) int {
	for i < len(raw) && !isSpace(raw[i]) && raw[i] != ',' && raw[i] != '}' && raw[i] != ']' {
		i++
	}
	return i
}

// skipContainer returns the index after the object or array at i. It counts the
// brackets outside of strings, not which they are.
func skipContainer(raw []byte, i int) int {
	for depth := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i = SkipString(raw, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(raw)
}

// SkipString returns the index after the string whose quote is at i.
func SkipString(raw []byte, i int) int {
	for end := i + 1; ; end++ {
		n := bytes.IndexByte(raw[end:], '"')
		if n < 0 {
			return len(raw)
		}
		end += n
		// The quote is text if an odd number of backslashes stands before it.
		slash := end
		for slash > i+1 && raw[slash-1] == '\\' {
			slash--
		}
		if (end-slash)&1 == 0 {
			return end + 1
		}
	}
}
