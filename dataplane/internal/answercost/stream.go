package answercost

import (
	"bytes"
	"sync/atomic"
	"time"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/catalogkv"
)

// Stream puts the charge into the last usage event of a stream. It keeps that event, and what follows it, until the charge
// is recorded; providers send them together. A nil Stream changes nothing.
type Stream struct {
	format catalogkv.Format
	// held has the last usage event, of length usage, and what came after it. Both are empty if there was none, or if output
	// came after it. next is memory for the one after it.
	held, next []byte
	usage      int
	// last is the event that ends the stream.
	last []byte
	// id, created and model are those of the chunks of a chat stream, as JSON.
	id, created, model []byte
	// timer ends the call of a provider that keeps the connection open behind a usage event that is kept; overdue reports that it
	// has done so.
	timer   *time.Timer
	overdue atomic.Bool
}

// maxWait is how long the last usage event is kept for what follows it. Without asking, clients have it at once.
const maxWait = 5 * time.Second

// maxHeld bounds what is kept behind a usage event, in bytes.
const maxHeld = 64 << 10

// NewStream returns the Stream for an answer, nil for a client that does not ask.
func NewStream(asked bool, f catalogkv.Format) *Stream {
	if !asked {
		return nil
	}
	return &Stream{format: f}
}

// Event takes over the event that out has from an index on, and returns the rest of out, with what was kept if the event
// shows that it is not the last. ending reports whether the model has ended.
func (s *Stream) Event(out []byte, from int, kind format.Kind, ending bool) []byte {
	if s == nil || len(out) == from {
		return out
	}

	ev := out[from:]
	switch {
	case kind == format.Terminal:
		s.last = append(s.last, ev...)
		return out[:from]
	case s.hasUsage(ev, ending):
		s.next = append(s.next[:0], ev...)
		out = append(out[:from], s.held...)
		s.held, s.next, s.usage = s.next, s.held[:0], len(s.next)
		return out
	case len(s.held) == 0:
		return out
	case kind == format.Content || len(s.held)+len(ev) > maxHeld:
		s.next = append(s.next[:0], ev...)
		out = append(append(out[:from], s.held...), s.next...)
		s.held = s.held[:0]
		return out
	}

	s.held = append(s.held, ev...)
	return out[:from]
}

// Watch calls cancel when the last usage event is kept for too long, while ending reports that the model has ended. It is called
// after each read, and with false when the stream is over.
func (s *Stream) Watch(ending bool, cancel func()) {
	if s == nil {
		return
	}

	switch waits := ending && len(s.held) > 0; {
	case waits && s.timer == nil:
		s.timer = time.AfterFunc(maxWait, func() {
			s.overdue.Store(true)
			cancel()
		})
	case !waits && s.timer != nil:
		s.timer.Stop()
		s.timer = nil
	}
}

// Overdue reports whether Watch has called cancel: the stream is over, as if the provider had closed it.
func (s *Stream) Overdue() bool { return s != nil && s.overdue.Load() }

// Added takes over the end of a stream that the gateway has added to out from an index on.
func (s *Stream) Added(out []byte, from int) []byte { return s.Event(out, from, format.Terminal, true) }

// End appends what was kept, with the charge. c is nil if that is unknown.
func (s *Stream) End(out []byte, c *Charge) []byte {
	if s == nil {
		return out
	}

	switch {
	case len(s.held) > 0:
		out = c.appendEvent(out, s.held[:s.usage], false)
		out = append(out, s.held[s.usage:]...)
	case c != nil && s.format == catalogkv.Chat && len(s.last) > 0:
		out = s.appendChunk(out, c)
	}

	if s.format == catalogkv.Responses {
		out = c.appendEvent(out, s.last, true)
	} else {
		out = append(out, s.last...)
	}
	s.held, s.last = s.held[:0], s.last[:0]

	return out
}

// appendEvent appends an event with the charge in the usage of its data, or of the response in them.
func (c *Charge) appendEvent(out, ev []byte, inResponse bool) []byte {
	at := dataOf(ev)
	if c == nil || at < 0 {
		return append(out, ev...)
	}
	if inResponse {
		data := jsonspan.ObjectAt(ev, at)
		for at = -1; data.Next(); {
			if string(data.DecodedName()) == "response" {
				at = data.Start()
			}
		}
		if at < 0 {
			return append(out, ev...)
		}
	}
	p, ok := find(ev, at)
	if !ok {
		return append(out, ev...)
	}

	out = append(out, ev[:p.from]...)
	out = c.appendAt(out, p)
	return append(out, ev[p.to:]...)
}

// hasUsage reports whether an event is one that a stream of the format has its usage in, and may be the last of them.
func (s *Stream) hasUsage(ev []byte, ending bool) bool {
	at := dataOf(ev)
	if at < 0 {
		return false
	}

	switch s.format {
	case catalogkv.Chat:
		s.note(ev[at:])
		usage, _ := jsonspan.Find(ev[at:], "usage")
		choices, _ := jsonspan.Find(ev[at:], "choices")
		elements := jsonspan.ArrayAt(choices, 0)
		return jsonspan.KindOf(usage) == jsonspan.KindObject && (ending || !elements.Next())
	case catalogkv.Messages:
		return jsonspan.FindText(ev[at:], "type") == "message_delta"
	case catalogkv.Responses, catalogkv.Images, catalogkv.Videos:
	}
	return false
}

// note remembers what all chunks of a chat stream have in common.
func (s *Stream) note(data []byte) {
	if s.id != nil {
		return
	}
	id, known := jsonspan.Find(data, "id")
	if !known {
		return
	}
	created, _ := jsonspan.Find(data, "created")
	model, _ := jsonspan.Find(data, "model")
	s.id, s.created, s.model = bytes.Clone(id), bytes.Clone(created), bytes.Clone(model)
}

// appendChunk appends a chunk with the usage of a chat stream whose provider sends none.
func (s *Stream) appendChunk(out []byte, c *Charge) []byte {
	out = append(out, `data: {`...)
	for _, m := range []struct {
		name  string
		value []byte
	}{{"id", s.id}, {"created", s.created}, {"model", s.model}} {
		if len(m.value) > 0 {
			out = append(out, '"')
			out = append(out, m.name...)
			out = append(out, `":`...)
			out = append(append(out, m.value...), ',')
		}
	}
	out = append(out, `"object":"chat.completion.chunk","choices":[],"usage":`...)
	return append(c.appendUsage(out), "}\n\n"...)
}

// dataOf returns the index of the object in the data of an event, -1 if there is none. Events with an object were written in
// one line by package format, or came in one.
func dataOf(ev []byte) int {
	const field = "data:"
	for at := 0; at < len(ev); {
		if bytes.HasPrefix(ev[at:], []byte(field)) {
			if at = jsonspan.SkipSpace(ev, at+len(field)); at < len(ev) && ev[at] == '{' {
				return at
			}
			return -1
		}
		n := bytes.IndexAny(ev[at:], "\r\n")
		if n < 0 {
			return -1
		}
		at += n + 1
	}
	return -1
}
