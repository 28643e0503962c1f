package chat

import (
	"bytes"
	"math/bits"
	"sync"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/apierr"
	"modelgateway/shared/price"
)

// reader reads an answer of the format chat completions.
type reader struct {
	answer.Base
	wantsUsage bool   // whether the client requested usage
	choices    int64  // how many choices the answer will have
	begun      bool   // whether there was a choice
	ended      uint64 // the choices that have ended, a bit for each
	done       bool   // whether the end of the stream has been sent
	// loose is the number of images without an index of their own, drawn has a bit for each of the others.
	loose int64
	drawn uint64
	// bytesAtUsage is the length of the delivered text at the time of the last usage report.
	bytesAtUsage int64
	// template has the bytes that most chunks have in common.
	template template
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// echoed are the replaced parameters that an answer may repeat.
var echoed = []string{"user", "safety_identifier", "prompt_cache_key", "metadata", "store"}

func (Dialect) NewAnswer(cfg format.AnswerConfig) format.Answer {
	a := readers.Get().(*reader)
	a.Begin(cfg)
	a.wantsUsage, a.choices = true, 1
	if cfg.Request != nil {
		a.wantsUsage, a.choices = cfg.Request.IncludeUsage || cfg.IncludeUsage, cfg.Request.N
		a.Echo.Capture(cfg.Request, echoed)
	}
	a.begun, a.ended, a.done, a.bytesAtUsage = false, 0, false, 0
	a.loose, a.drawn = 0, 0
	a.template.reset()
	return a
}

func (a *reader) Release() { readers.Put(a) }

// Usage returns the last reported usage. It is not final if text came after it: some providers report usage first,
// others with every chunk.
func (a *reader) Usage() (usage price.Usage, reported bool) {
	return a.Total, a.Reported && a.Delivered.Bytes <= a.bytesAtUsage
}

// JSON reads a complete answer: one with choices and without an error.
func (a *reader) JSON(dst, body []byte) (out []byte, ok bool) {
	w := jsonspan.NewSplicer(dst, body)
	c := jsonspan.ObjectAt(body, 0)
	p := chunkParts{textMember: "message"}
	for c.Next() {
		a.member(body, &c, &w, &p)
		if c.Dropped() {
			continue
		}
		if value, changed := a.Echo.Of(c.DecodedName(), c.Value()); changed {
			c.Set(&w, value)
		}
	}

	if p.failed || p.choices.count <= 0 || !c.Alone() {
		a.RecordFailure(body)
		return dst, false
	}

	a.recordUsage(&p, body)
	a.Delivered, a.bytesAtUsage = p.sum.Size, p.sum.Bytes
	a.addMedia(&p.choices)
	if !w.Changed() {
		return body, true
	}

	return w.Finish(), true
}

// Event reads one event. A chunk that matches the template is not parsed.
func (a *reader) Event(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	if ev.Comment || ev.Extra {
		ev = a.Visible(ev)
	}
	if answer.IsIgnored(ev) {
		return a.PassThrough(dst, ev)
	}

	if a.Failed() { // only usage still matters
		delivered := a.Delivered
		a.chunk(nil, ev)
		a.Delivered = delivered
		return dst, format.Other
	}

	if answer.IsDone(ev.Data) {
		if !a.begun {
			return a.Fail(dst, ev.Data) // the end of nothing
		}
		a.done = true
		return ev.AppendTerminated(dst), format.Terminal
	}

	if text, padding, ok := a.template.match(ev); ok {
		return a.appendMatched(dst, ev, text, padding)
	}

	return a.chunk(dst, ev)
}

// appendMatched appends a chunk that matches the template.
func (a *reader) appendMatched(dst []byte, ev sse.Event, text, padding []byte) ([]byte, format.Kind) {
	kind := format.Other
	if n := answer.SizeOf(text); n.Bytes > 0 {
		a.Delivered.Add(n)
		kind = format.Content
	}
	if !a.template.changes {
		return append(dst, ev.Raw...), kind
	}
	return a.template.appendEvent(dst, text, padding), kind
}

// chunkParts are the parts of an answer or chunk that the reader needs.
type chunkParts struct {
	textMember string // the member of a choice that contains its text: message or delta
	choices    choices
	sum        answer.TextSum
	shift      int // of the choices
	padding    stringSpan
	failed     bool
	flat       bool   // whether there is a text or code of an error outside of a member error
	usage      []byte // the usage object
	timings    []byte
}

// chunk reads a chunk.
func (a *reader) chunk(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	w, c, text := a.BeginRewrite(dst, ev)
	p := chunkParts{textMember: "delta", failed: string(ev.Name) == "error" || !c.Exists()}
	for c.Next() {
		a.member(text, &c, &w, &p)
	}

	found := a.recordUsage(&p, ev.Data)
	reported := found != answer.Nothing
	if found == answer.Counts {
		a.bytesAtUsage = a.Delivered.Bytes + p.sum.Bytes
	}
	if p.failed || p.flat && p.choices.count == 0 && !reported {
		return a.Fail(dst, ev.Data)
	}

	a.Delivered.Add(p.sum.Size)
	a.begun = a.begun || p.choices.count > 0
	a.ended |= p.choices.ended
	a.addMedia(&p.choices)
	a.Now.Ending, a.Now.Shows = a.hasEnded(), a.Now.Shows || p.choices.reasons
	if reported && !a.wantsUsage && p.choices.count == 0 {
		return dst, format.Other
	}

	out := w.Finish()
	if p.sum.Bytes == 0 {
		return out, format.Other
	}

	// A template needs exactly one string of text and data in one line.
	alone := answer.TextLen(text[p.sum.Start:p.sum.End]) == p.sum.Bytes
	if alone && !reported && p.choices.count == 1 && p.choices.ended == 0 && !ev.Partial && bytes.IndexByte(ev.Data, '\n') < 0 {
		a.template.build(ev, out[len(dst):], stringSpan{p.sum.Start, p.sum.End, p.sum.Start + p.shift}, p.padding)
	}

	return out, format.Content
}

// addMedia counts the audio and the images of choices.
func (a *reader) addMedia(all *choices) {
	a.Audio += all.audio
	a.loose += all.images
	a.drawn |= all.drawn
	a.Images = a.loose + int64(bits.OnesCount64(a.drawn))
}

// member reads one top-level member, and changes or drops it if the client must not see it.
func (a *reader) member(text []byte, c *jsonspan.ObjectCursor, w *jsonspan.Splicer, p *chunkParts) {
	null := c.Kind() == jsonspan.KindNull
	switch name := c.DecodedName(); string(name) {
	case "id":
		a.SetID(c.Value())
	case "object":
		p.failed = p.failed || string(c.Value()) == `"error"`
	case "model":
		if !bytes.Equal(c.Value(), a.Model) {
			c.Set(w, a.Model)
		}
	case "choices":
		if c.Kind() != jsonspan.KindArray {
			break
		}
		p.shift = w.Shift()
		var end int
		p.choices, end = readChoices(&p.sum, w, text, c.Start(), p.textMember)
		p.failed = p.failed || p.choices.failed
		c.SetEnd(end)
	case "error":
		isError := answer.IsError(c.Value())
		if p.failed = p.failed || isError; !isError {
			c.Drop(w) // one client library treats the mere presence of the member as a failure
		}
	case "usage":
		if null && !a.wantsUsage {
			c.Drop(w)
			break
		}
		c.SetEnd(answer.DropCosts(w, text, c.Start()))
		p.usage = c.Value()
	case "x_groq":
		c.SetEnd(answer.DropCosts(w, text, c.Start()))
		e, ok := jsonspan.Find(c.Value(), "error")
		p.failed = p.failed || ok && answer.IsError(e)
	case "service_tier":
		a.SetServiceTier(c.Value())
	case "timings":
		p.timings = c.Value()
	case "obfuscation":
		if c.Kind() == jsonspan.KindString {
			p.padding = stringSpan{c.Start(), c.End(), c.Start() + w.Shift()}
		}
	default:
		switch {
		case answer.IsCost(name):
			c.Drop(w)
		case answer.IsErrorText(name):
			p.flat = p.flat || answer.IsSet(c.Value())
		}
	}
}

// hasEnded reports whether all choices have ended.
func (a *reader) hasEnded() bool { return int64(bits.OnesCount64(a.ended)) >= max(a.choices, 1) }

// Finish adds the end that some providers leave out after a complete answer.
func (a *reader) Finish(dst []byte) (out []byte, ok bool) {
	if a.done {
		return dst, true
	}
	if !a.hasEnded() {
		return dst, false
	}
	a.done = true
	return append(dst, doneEvent...), true
}

// AppendError appends an error in the common envelope, and the end of the stream.
func (*reader) AppendError(dst []byte, e *apierr.Error, requestID string) []byte {
	dst = sse.AppendEvent(dst, "", e.Envelope(requestID))
	return append(dst, doneEvent...)
}

const doneEvent = "data: " + answer.Done + "\n\n"
