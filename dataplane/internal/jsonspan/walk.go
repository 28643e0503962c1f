package jsonspan

import (
	"bytes"
	"iter"
	"strconv"
)

// The functions below are meant for values inside a text that Parse has accepted. For any other text their results are
// undefined, but they never panic and always end.

// Members returns the members of the object raw: the decoded name and the value as written. It yields nothing if raw is
// no object. It allocates memory only for names that are written with escapes.
func Members(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		c := ObjectAt(raw, 0)
		for c.Next() && yield(c.DecodedName(), c.Value()) { //nolint:revive // the condition does the work
		}
	}
}

// Elements returns the elements of the array raw as written. It yields nothing if raw is no array.
func Elements(raw []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		c := ArrayAt(raw, 0)
		for c.Next() && yield(c.Value()) { //nolint:revive // the condition does the work
		}
	}
}

// Find returns the value at a path, as written. Each step is the name of a member or, in an array, the index of an
// element in decimal. ok is false if the path does not exist or a value before its end is null. Find allocates no
// memory.
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

// FindText returns the decoded text of the string at a path, empty if there is no string. It allocates the text.
func FindText(raw []byte, path ...string) string {
	value, _ := Find(raw, path...)
	text, _ := Text(nil, value)
	return string(text)
}

// member returns the value of the named member of the object raw, or nil.
func member(raw []byte, name string) []byte {
	c := ObjectAt(raw, 0)
	for c.Next() {
		if isName(raw[c.key:c.nameEnd], name) {
			return c.Value()
		}
	}
	return nil
}

// element returns the element of the array raw at the index step, or nil.
func element(raw []byte, step string) []byte {
	n, err := strconv.ParseUint(step, 10, 31)
	if err != nil {
		return nil
	}
	c := ArrayAt(raw, 0)
	for c.Next() {
		if c.Index() == int(n) {
			return c.Value()
		}
	}
	return nil
}

// isName reports whether the quoted text decodes to name.
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
