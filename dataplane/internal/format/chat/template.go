package chat

import (
	"bytes"

	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
)

// template has the bytes that the usual events of a stream have in common: everything except the text of the delta and,
// in some streams, a padding string. An event with the same bytes around two complete strings is the same object with
// other strings, so the client's version of it differs from the template's in these strings only.
type template struct {
	// in has the parts as received, out as sent to the client: before the text, after it, and after the padding.
	// Where two parts meet, the first ends and the second begins with a quote of the string between them. The last
	// part is empty if there is no padding.
	in, out [3][]byte
	// framing is the number of bytes in the event that are not data. It is larger in an event whose strings span
	// several lines.
	framing int
	// changes reports whether in and out differ.
	changes bool
	// builds counts how often the template was built. The count is limited, so that it is not built for every event of
	// a stream whose events all differ.
	builds int
}

// maxTemplateBuilds is the greatest number of times that the template of one stream is built.
const maxTemplateBuilds = 16

// reset empties the parts.
func (t *template) reset() {
	for i := range t.in {
		t.in[i], t.out[i] = answer.Trim(t.in[i]), answer.Trim(t.out[i])
	}
	t.builds, t.changes = 0, false
}

// stringSpan is the position of a string in an event, and its start in the client's version of the event.
type stringSpan struct{ start, end, outStart int }

// build builds the template from an event, whose data are in one line, and the client's version of it. Padding before
// the text is ignored.
func (t *template) build(ev sse.Event, out []byte, text, padding stringSpan) {
	if t.builds == maxTemplateBuilds {
		return
	}

	learned := t.builds + 1
	t.reset()
	t.builds, t.framing = learned, len(ev.Raw)-len(ev.Data)
	in := ev.Raw
	outEnd := text.outStart + text.end - text.start
	t.in[0] = append(t.in[0], in[:text.start+1]...)
	t.out[0] = append(t.out[0], out[:text.outStart+1]...)
	in, out = in[text.end-1:], out[outEnd-1:]
	if padding.start >= text.end {
		cut := padding.start - text.end + 2
		outCut := padding.outStart - outEnd + 2
		t.in[1] = append(t.in[1], in[:cut]...)
		t.out[1] = append(t.out[1], out[:outCut]...)
		size := padding.end - padding.start
		in, out = in[cut+size-2:], out[outCut+size-2:]
		t.in[2] = append(t.in[2], in...)
		t.out[2] = append(t.out[2], out...)
	} else {
		t.in[1] = append(t.in[1], in...)
		t.out[1] = append(t.out[1], out...)
	}

	for i := range t.in {
		t.changes = t.changes || !bytes.Equal(t.in[i], t.out[i])
	}
}

// match returns the two strings, with their quotes, of an event that matches the template; padding is nil if the
// template has none.
func (t *template) match(ev sse.Event) (text, padding []byte, ok bool) {
	raw := ev.Raw
	if len(t.in[0]) == 0 || ev.Partial || len(raw)-len(ev.Data) != t.framing || !bytes.HasPrefix(raw, t.in[0]) {
		return nil, nil, false
	}

	start := len(t.in[0]) - 1
	end := jsonspan.SkipString(raw, start)
	text = raw[start:end]
	rest := raw[end-1:]
	if len(t.in[2]) == 0 {
		return text, nil, end-1 > start && bytes.Equal(rest, t.in[1])
	}
	if end-1 <= start || !bytes.HasPrefix(rest, t.in[1]) {
		return nil, nil, false
	}

	start = len(t.in[1]) - 1
	end = jsonspan.SkipString(rest, start)
	return text, rest[start:end], end-1 > start && bytes.Equal(rest[end-1:], t.in[2])
}

// appendEvent appends the client's version of an event that matched.
func (t *template) appendEvent(dst, text, padding []byte) []byte {
	dst = append(dst, t.out[0]...)
	dst = append(dst, text[1:len(text)-1]...)
	dst = append(dst, t.out[1]...)
	if len(t.out[2]) == 0 {
		return dst
	}
	dst = append(dst, padding[1:len(padding)-1]...)
	return append(dst, t.out[2]...)
}
