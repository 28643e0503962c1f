package chat

import (
	"bytes"

	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
)

// template is what the usual events of a stream have in common: all but the text of the
// delta, and perhaps a string of padding after it. An event that has the same bytes
// around two whole strings is the same object with other strings, so what became of the
// one that the template was made from becomes of it.
type template struct {
	// in are the parts as they come, out as they go to the client: before the text,
	// after it, and after the padding. Where two parts meet, the first ends and the
	// second begins with the quotes of the string between them. The last part is
	// empty if there is no padding.
	in, out [3][]byte
	// framing is how many bytes of the event were not data. An event whose strings go
	// over several lines has more.
	framing int
	// changes says that in and out differ.
	changes bool
	// learned counts how often the template was made, so that a stream in which no
	// event is like the last does not pay for it all along.
	learned int
}

// maxLearned is how often a stream may have its template made.
const maxLearned = 16

// reset forgets the parts.
func (t *template) reset() {
	for i := range t.in {
		t.in[i], t.out[i] = answer.Trim(t.in[i]), answer.Trim(t.out[i])
	}
	t.learned, t.changes = 0, false
}

// place is where a string stands in an event, and where in what the client got for it.
type place struct{ start, end, outStart int }

// learn makes the template of an event, whose data are in one line, and of what the
// client got for it. Padding before the text counts as none.
func (t *template) learn(ev sse.Event, out []byte, text, padding place) {
	if t.learned == maxLearned {
		return
	}
	learned := t.learned + 1
	t.reset()
	t.learned, t.framing = learned, len(ev.Raw)-len(ev.Data)
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

// match returns the two strings, with their quotes, of an event that is like the
// template; padding is nil if the template has none.
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

// appendEvent appends what the client gets for an event that matched.
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
