package format

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// maxLabel bounds a label, in bytes. Ids of providers that pass requests on have
// several hundred.
const maxLabel = 1 << 10

// Label is a text of a client or a provider as it may stand in the record of a
// request: a size, a quality, an id. What cannot be one is empty: such a size has no
// price of its own.
func Label(text []byte) string {
	if !IsLabel(text) {
		return ""
	}
	return string(text)
}

// IsLabel tells whether a text may stand in the record of a request. One that is too
// large to be sent, or has what Postgres does not take, would keep the request from
// being billed.
func IsLabel(text []byte) bool {
	return len(text) <= maxLabel && utf8.Valid(text) && !bytes.ContainsFunc(text, unicode.IsControl)
}
