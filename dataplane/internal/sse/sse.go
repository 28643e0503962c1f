// Package sse splits event streams into events while they arrive, and writes the
// few events that the gateway makes itself.
//
// It owns framing: where an event starts and ends, its name and its data. It does
// not read from connections, does not write to them, and does not know what any
// event means.
//
// Invariants:
//
//   - Nothing is lost or changed: the Raw bytes of all events, with those of Flush
//     at the end, are the stream, byte for byte. What cannot be understood is
//     passed on as it came.
//   - How the stream was cut into reads makes no difference to the events.
//   - Events alias the bytes of the read. Only an event that began in an earlier
//     read is copied, into a pooled buffer that goes back as soon as the event has
//     been taken; a stream that waits between events holds no buffer.
package sse

import "bytes"

// Event is one block of a stream: lines up to and including the empty line that
// ends them, or one comment line that stands before any field, or an empty line
// that ends nothing. Its slices are good until the next call of Next, Feed, Flush
// or Close.
type Event struct {
	// Raw is the block as received, line ends included.
	Raw []byte
	// Name is the value of the last event field; empty if there is none.
	Name []byte
	// Data is the values of the data fields, joined with LF. It is nil without
	// such a field, in which case clients dispatch nothing, and not nil if the
	// data are merely empty.
	Data []byte
	// Comment says that Raw is a comment line, which comes without waiting for an
	// empty line: that is what keep-alive text is for.
	Comment bool
	// Partial says that the stream ended before the block did, which only events
	// of Flush can be. Clients drop such an event, and its data may be cut.
	Partial bool
}

// AppendTerminated appends Raw to dst and, if the event is partial, the line ends
// that complete it.
func (e Event) AppendTerminated(dst []byte) []byte {
	dst = append(dst, e.Raw...)
	if !e.Partial {
		return dst
	}
	// After a CR, too, one LF would only end the same line.
	if n := len(e.Raw); n > 0 && e.Raw[n-1] != '\n' {
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}

// AppendEvent appends an event to dst: data may have several lines. An event
// without a name gets no event field. A name ends at its first line end, so that
// no name can smuggle in a field.
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

// AppendComment appends a comment to dst, up to the first line end of text, and an
// empty line.
func AppendComment(dst []byte, text string) []byte {
	dst = append(dst, ": "...)
	dst = appendLine(dst, text)
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

// cutLine cuts b after its first line; more is false if that was the last.
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
