package jsonspan

import (
	"bytes"
	"iter"
	"strconv"
)

// The walkers below skip over values without checking them. They are meant for
// values inside a text that Parse has accepted; of other text they may yield
// anything, but they never panic and always end.

// Members returns the members of the object raw, each as its decoded name and its
// value as written; none if raw is not an object. Names are decoded aside, and
// memory is taken for it, only if they are written with escapes.
func Members(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) { walkMembers(raw, yield) }
}

// Elements returns the elements of the array raw as written; none if raw is not an
// array.
func Elements(raw []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) { walkElements(raw, yield) }
}

// Find returns the value at the end of path as written: each step is the name of a
// member or, in an array, the index of an element in decimal. ok is false if some
// step leads nowhere; a null on the way leads nowhere, one at the end is found. It
// takes no memory.
func Find(raw []byte, path ...string) (value []byte, ok bool) {
	for _, step := range path {
		switch KindOf(raw) {
		case KindObject:
			raw = member(raw, step)
		case KindArray:
			raw = element(raw, step)
		default:
			return nil, false
		}
		if raw == nil {
			return nil, false
		}
	}
	return raw, true
}

func walkMembers(raw []byte, yield func(name, value []byte) bool) {
	for i := firstItem(raw, '{'); i < len(raw); {
		quoted, value, next := memberAt(raw, i)
		name, ok := Text(nil, quoted)
		if !ok || len(value) == 0 || !yield(name, value) {
			return
		}
		i = next
	}
}

func walkElements(raw []byte, yield func(value []byte) bool) {
	for i := firstItem(raw, '['); i < len(raw); {
		end := SkipValue(raw, i)
		if end == i || !yield(raw[i:end:end]) {
			return
		}
		i = nextItem(raw, end)
	}
}

// member returns the value of the named member of the object raw, or nil.
func member(raw []byte, name string) []byte {
	for i := firstItem(raw, '{'); i < len(raw); {
		quoted, value, next := memberAt(raw, i)
		if len(value) == 0 {
			return nil
		}
		if isName(quoted, name) {
			return value
		}
		i = next
	}
	return nil
}

// element returns the element of the array raw whose index is step, or nil.
func element(raw []byte, step string) []byte {
	n, err := strconv.ParseUint(step, 10, 31)
	if err != nil {
		return nil
	}
	for i := firstItem(raw, '['); i < len(raw); {
		end := SkipValue(raw, i)
		if end == i {
			return nil
		}
		if n == 0 {
			return raw[i:end:end]
		}
		n--
		i = nextItem(raw, end)
	}
	return nil
}

// isName tells whether the quoted text decodes to name.
func isName(quoted []byte, name string) bool {
	if len(quoted) < len(name)+2 {
		return false
	}
	if len(quoted) == len(name)+2 {
		// Decoding only ever shortens, so an escape here means another name.
		return string(quoted[1:len(quoted)-1]) == name && bytes.IndexByte(quoted, '\\') < 0
	}
	var buf [64]byte
	text, ok := Text(buf[:0], quoted)
	return ok && string(text) == name
}

// memberAt splits the member at i; value is empty if there is none.
func memberAt(raw []byte, i int) (quoted, value []byte, next int) {
	if raw[i] != '"' {
		return nil, nil, len(raw)
	}
	keyEnd := SkipString(raw, i)
	colon := SkipSpace(raw, keyEnd)
	if colon == len(raw) || raw[colon] != ':' {
		return nil, nil, len(raw)
	}
	start := SkipSpace(raw, colon+1)
	end := SkipValue(raw, start)
	return raw[i:keyEnd], raw[start:end:end], nextItem(raw, end)
}

// firstItem returns the index of the first item of the container raw, len(raw) if
// it is empty or does not start with the given bracket.
func firstItem(raw []byte, open byte) int {
	if len(raw) == 0 || raw[0] != open {
		return len(raw)
	}
	i := SkipSpace(raw, 1)
	if i < len(raw) && (raw[i] == '}' || raw[i] == ']') {
		return len(raw)
	}
	return i
}

// nextItem returns the index of the item after the one that ends at i, len(raw) if
// that was the last.
func nextItem(raw []byte, i int) int {
	i = SkipSpace(raw, i)
	if i == len(raw) || raw[i] != ',' {
		return len(raw)
	}
	return SkipSpace(raw, i+1)
}

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
