package answer

import "modelgateway/dataplane/internal/format"

// Echo holds what the client sent in parameters whose values a provider repeats, but
// got another of. Its zero value knows none.
type Echo struct {
	names []string
	ends  []int // after each name's value in text
	text  []byte
}

func (e *Echo) empty() Echo { return Echo{nil, e.ends[:0], Trim(e.text)} }

// Take copies the values of the named parameters from the request. names must not
// change.
func (e *Echo) Take(r *format.Request, names []string) {
	if r == nil {
		return
	}
	e.names = names
	for _, name := range names {
		e.text = append(e.text, r.Value(name)...)
		e.ends = append(e.ends, len(e.text))
	}
}

// Of returns what the client is to see in the named member, whose value a provider
// gave as raw; changed is false if that is raw itself. A value that the client never
// sent is nulled, except that an empty object says nothing and a truth value is true.
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
