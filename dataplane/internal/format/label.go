package format

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// maxLabel bounds a label, in bytes. Request ids of resellers have several hundred bytes.
const maxLabel = 1 << 10

// Label returns a client's or provider's text for the record of a request (a size, a quality, an id), or an empty
// string if the text is not a valid label. A size that is not a valid label cannot have a price of its own.
func Label(text []byte) string {
	if !IsLabel(text) {
		return ""
	}
	return string(text)
}

// IsLabel reports whether a text may be part of the record of a request. A text that is too long, or that Postgres
// rejects, would keep the request from being charged.
func IsLabel(text []byte) bool {
	return len(text) <= maxLabel && utf8.Valid(text) && !bytes.ContainsFunc(text, unicode.IsControl)
}
