package splice

import (
	"bytes"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
)

// Writer copies a text to dst with some parts changed. Changes come in the order
// of the text. Take it from Copy.
type Writer struct {
	dst, text []byte
	from      int // what lies before is written or left out
	shift     int // how much longer that has become
	changed   bool
}

// Copy returns a Writer that appends text to dst.
func Copy(dst, text []byte) Writer { return Writer{dst: dst, text: text} }

// Replace writes raw in place of text[start:end].
func (w *Writer) Replace(start, end int, raw []byte) {
	start = max(start, w.from)
	if end < start {
		return
	}
	w.dst = append(w.dst, w.text[w.from:start]...)
	w.dst = append(w.dst, raw...)
	w.shift += len(raw) - (end - start)
	w.from, w.changed = end, true
}

// Shift returns by how much the changes so far have moved what lies behind them.
func (w *Writer) Shift() int { return w.shift }

// Changed tells whether anything was replaced.
func (w *Writer) Changed() bool { return w.changed }

// Finish writes the rest of the text and returns the extended dst.
func (w *Writer) Finish() []byte { return append(w.dst, w.text[w.from:]...) }

// Set gives the current member the value raw.
func (c *Cursor) Set(w *Writer, raw []byte) { w.Replace(c.start, c.End(), raw) }

// Drop leaves the current member out, with the comma that it does not need then.
func (c *Cursor) Drop(w *Writer) {
	c.dropped = true
	if c.last >= 0 {
		w.Replace(c.last, c.End(), nil)
		return
	}
	end := c.End()
	if i := jsonspan.SkipSpace(c.text, end); i < len(c.text) && c.text[i] == ',' {
		end = jsonspan.SkipSpace(c.text, i+1)
	}
	w.Replace(c.key, end, nil)
}

// Frame returns the bytes of an event as one text, and where in it the event's data
// stand, which are one JSON text without line ends. Only an event whose data came in
// several lines, or that was cut off at the end of the stream, is put together anew, in
// buf.
func Frame(buf *[]byte, ev sse.Event) (text []byte, data jsonspan.Span) {
	if !ev.Partial {
		// The data stand after a few bytes of field name.
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
	// Between the tokens of JSON a line end is white space, and inside of them
	// there is none.
	for i := data.Start; i < data.End; i++ {
		if text[i] == '\n' || text[i] == '\r' {
			text[i] = ' '
		}
	}
	text = append(text, "\n\n"...)
	*buf = text
	return *buf, data
}
