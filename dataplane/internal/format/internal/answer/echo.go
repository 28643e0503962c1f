package answer

import (
	"bytes"

	"modelgateway/dataplane/internal/format"
)

// Echo has the client's values of parameters that providers repeat in their answers, but that were replaced before
// they were sent to the provider. The zero value is empty.
type Echo struct {
	names []string
	ends  []int // after each name's value in text
	text  []byte
}

func (e *Echo) reset() Echo { return Echo{nil, e.ends[:0], Trim(e.text)} }

// Capture copies the values of the named parameters from the request. names must not change.
func (e *Echo) Capture(r *format.Request, names []string) {
	if r == nil {
		return
	}
	e.names = names
	for _, name := range names {
		e.text = appendInOneLine(e.text, r.Value(name))
		e.ends = append(e.ends, len(e.text))
	}
}

// appendInOneLine appends a value without its line ends, which would end the field of an event. In valid JSON they occur
// only between tokens.
func appendInOneLine(dst, raw []byte) []byte {
	for {
		i := bytes.IndexAny(raw, "\r\n")
		if i < 0 {
			return append(dst, raw...)
		}
		dst, raw = append(dst, raw[:i]...), raw[i+1:]
	}
}

// Of returns the client's value of the named member, whose value in the provider's answer is raw; changed is false if
// that is raw itself. If the client did not set the parameter, the value is null; but an empty object or a boolean of
// the provider is kept.
func (e *Echo) Of(name, raw []byte) (value []byte, changed bool) {
	for i, known := range e.names {
		if string(name) != known {
			continue
		}
		start := 0
		if i > 0 {
			start = e.ends[i-1]
		}
		if value = e.text[start:e.ends[i]]; len(value) > 0 {
			return value, string(value) != string(raw)
		}
		switch string(raw) {
		case "null", "{}", "true", "false":
			return raw, false
		}
		return null, true
	}
	return raw, false
}

var null = []byte("null")
