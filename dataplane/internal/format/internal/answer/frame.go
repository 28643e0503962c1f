package answer

import (
	"bytes"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
)

// eventFrame returns the bytes of an event as one text, and the position in it of the event's data, which are one
// JSON text without line ends. It assembles the event again, in buf, only if its data came in several lines or if the
// end of the stream truncated it.
func eventFrame(buf *[]byte, ev sse.Event) (text []byte, data jsonspan.Span) {
	if !ev.Partial {
		// In Raw the data follow a few bytes of field name.
		if at := bytes.Index(ev.Raw, ev.Data); at >= 0 {
			return ev.Raw, jsonspan.Span{Start: at, End: at + len(ev.Data)}
		}
	}

	text = (*buf)[:0]
	if len(ev.Name) > 0 {
		text = append(text, "event: "...)
		text = append(text, ev.Name...)
		text = append(text, '\n')
	}

	text = append(text, "data: "...)
	data.Start = len(text)
	text = append(text, ev.Data...)
	data.End = len(text)

	// In valid JSON a line end occurs only between tokens, where it is white space.
	for i := data.Start; i < data.End; i++ {
		if text[i] == '\n' || text[i] == '\r' {
			text[i] = ' '
		}
	}

	text = append(text, "\n\n"...)
	*buf = text
	return *buf, data
}
