// Package sse splits event streams into events while they arrive, and writes the few events that the gateway creates
// itself.
//
// It owns framing: where an event begins and ends, its name and its data. It does not read from or write to
// connections, and does not interpret events.
//
// Invariants:
//
//   - Nothing is lost or changed: the Raw bytes of all events, with those of Flush at the
//     end, are the stream, byte for byte. Bytes that cannot be parsed are passed on as received.
//   - The events do not depend on how the stream was split into reads.
//   - Events alias the bytes of the read. Only an event that began in an earlier read is
//     copied, into a pooled buffer that is returned as soon as the event has been used. A
//     stream that waits between two events holds no buffer.
package sse

import "bytes"

// Event is one block of a stream: lines up to and including the empty line that ends them, one comment line before any
// field, or an empty line alone. Its slices are valid until the next call of Next, Feed, Flush or Close.
type Event struct {
	// Raw is the block as received, including line ends.
	Raw []byte
	// Name is the value of the last event field, empty if there is none.
	Name []byte
	// Data is the values of the data fields, joined with LF. It is nil without such a field, in which case clients
	// dispatch no event, and not nil if the data are empty.
	Data []byte
	// Comment reports whether Raw is a comment line. Comments are delivered without waiting for an empty line,
	// because they keep connections alive.
	Comment bool
	// Bare reports whether a line of Raw is, or begins, a JSON object instead of a field. Clients ignore such a line;
	// some servers write the error that ends a stream this way.
	Bare bool
	// Extra reports whether Raw has lines beside its event and data fields: an id, a retry time, comments after the first
	// field, and lines that clients ignore.
	Extra bool
	// Partial reports whether the stream ended before the block did. Only Flush returns such events. Clients drop
	// them, and their data may be truncated.
	Partial bool
}

// Comment is a comment without a text, which keeps a connection alive.
const Comment = ":\n\n"

// Begins reports whether text begins with a line of an event stream, after white space. enough is false if more bytes are
// needed to tell.
func Begins(text []byte) (is, enough bool) {
	text = bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), " \t\r\n")
	for _, field := range [][]byte{[]byte(":"), []byte("data:"), []byte("event:"), []byte("id:"), []byte("retry:")} {
		if bytes.HasPrefix(text, field) {
			return true, true
		}
		if bytes.HasPrefix(field, text) {
			return false, false
		}
	}
	return false, true
}

// AppendTerminated appends Raw to dst and, if the event is partial, the line ends that complete it.
func (e Event) AppendTerminated(dst []byte) []byte {
	dst = append(dst, e.Raw...)
	if !e.Partial {
		return dst
	}
	// After a CR one LF would not be enough: it would only end the same line.
	if n := len(e.Raw); n > 0 && e.Raw[n-1] != '\n' {
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}

// AppendEvent appends an event to dst. data may have several lines. An empty name adds no event field. A name is cut
// at its first line end, so that it cannot inject a field.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(dst, "event: "...)
		dst = appendLine(dst, name)
	}
	for more := true; more; {
		var line []byte
		line, data, more = cutLine(data)
		dst = append(dst, "data: "...)
		dst = append(dst, line...)
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}

// appendLine appends the first line of text and a line end.
func appendLine(dst []byte, text string) []byte {
	for i := range len(text) {
		if text[i] == '\n' || text[i] == '\r' {
			text = text[:i]
			break
		}
	}
	dst = append(dst, text...)
	return append(dst, '\n')
}

// cutLine splits b after its first line; more is false if that was the last line.
func cutLine(b []byte) (line, rest []byte, more bool) {
	i := bytes.IndexAny(b, "\r\n")
	if i < 0 {
		return b, nil, false
	}
	rest = b[i+1:]
	if b[i] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return b[:i], rest, true
}
