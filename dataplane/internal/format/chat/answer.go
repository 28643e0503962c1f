package chat

import (
	"bytes"
	"sync"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/format/internal/splice"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
)

// reader is the format.Answer of this format.
type reader struct {
	answer.Base
	asked    bool  // the client wants to see usage
	choices  int64 // how many answers there will be
	finished int64 // how many have ended
	done     bool  // the stream has said so
	// start is how the data of the chunks begin, through the value of the model, and
	// renamed the same with the client's name, empty if that is the same. Both are
	// empty until a chunk has shown it.
	start, renamed []byte
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// echoed are the replaced parameters that an answer may repeat.
var echoed = []string{"user", "safety_identifier", "prompt_cache_key", "metadata", "store"}

// NewAnswer returns the reader of one answer.
func (Dialect) NewAnswer(cfg format.AnswerConfig) format.Answer {
	a := readers.Get().(*reader)
	a.Begin(cfg)
	a.asked, a.choices = true, 1
	if cfg.Request != nil {
		a.asked, a.choices = cfg.Request.IncludeUsage, cfg.Request.N
		a.Echo.Take(cfg.Request, echoed)
	}
	a.finished, a.done, a.start, a.renamed = 0, false, a.start[:0], a.renamed[:0]
	return a
}

// Release gives the reader back.
func (a *reader) Release() { readers.Put(a) }

// JSON reads a whole answer: one that has choices and no error.
func (a *reader) JSON(dst, body []byte) (out []byte, ok bool) {
	w := splice.Copy(dst, body)
	c := splice.Members(body, 0)
	p := parts{choices: -1}
	for c.Next() {
		a.member(&c, &w, &p)
		if value, changed := a.Echo.Of(c.Name(), c.Value()); changed {
			c.Set(&w, value)
		}
	}
	if p.failed || p.choices < 0 || !c.Whole() {
		a.Fail(body)
		return dst, false
	}
	if a.takeUsage(&p, body); !a.Reported {
		a.measure(body, p.choices, `"message"`)
	}
	if !w.Changed() {
		return body, true
	}
	return w.Finish(), true
}

// Event reads one event. A chunk that begins like those before it is looked at only
// for what matters; any other is walked through.
func (a *reader) Event(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	if len(ev.Data) == 0 || answer.CutOff(ev) {
		return answer.Pass(dst, ev)
	}
	if a.Failed() {
		a.chunk(nil, ev) // for the usage that it may still report
		return dst, format.Other
	}
	if answer.IsDone(ev.Data) {
		a.done = true
		return ev.AppendTerminated(dst), format.Terminal
	}
	if len(a.start) == 0 || ev.Partial || !bytes.HasPrefix(ev.Data, a.start) {
		return a.chunk(dst, ev)
	}
	rest := ev.Data[len(a.start):]
	if a.special(rest) {
		return a.chunk(dst, ev)
	}
	kind := a.deltas(rest)
	if len(a.renamed) == 0 {
		return append(dst, ev.Raw...), kind
	}
	at := bytes.Index(ev.Raw, ev.Data)
	if at < 0 {
		return a.chunk(dst, ev)
	}
	dst = append(dst, ev.Raw[:at]...)
	dst = append(dst, a.renamed...)
	return append(dst, ev.Raw[at+len(a.start):]...), kind
}

// special tells whether the rest of a chunk has something that may have to be read or
// changed. The names cannot be part of content, where their quotes would be escaped.
func (a *reader) special(rest []byte) bool {
	if bytes.Contains(rest, []byte(`"error"`)) {
		return true
	}
	for {
		i := bytes.Index(rest, []byte(`"usage"`))
		if i < 0 {
			return false
		}
		rest = rest[i+len(`"usage"`):]
		if !a.asked || !bytes.HasPrefix(rest, []byte(":null")) {
			return true
		}
	}
}

// deltas measures the content of a chunk and notes the choices that end with it.
func (a *reader) deltas(rest []byte) format.Kind {
	before := a.Bytes
	a.measure(rest, 0, `"delta"`)
	if i := bytes.Index(rest, []byte(`"finish_reason"`)); i >= 0 {
		a.finish(rest[i:])
	}
	if a.Bytes > before {
		return format.Content
	}
	return format.Other
}

// finish counts the reasons to finish in text, which begins with the first.
func (a *reader) finish(text []byte) {
	for {
		rest := text[len(`"finish_reason"`):]
		rest = bytes.TrimLeft(rest, " :")
		if len(rest) > 0 && rest[0] == '"' {
			a.finished++
		}
		i := bytes.Index(rest, []byte(`"finish_reason"`))
		if i < 0 {
			return
		}
		text = rest[i:]
	}
}

type span struct{ start, end int }

// parts is what the top level of an answer or chunk has.
type parts struct {
	model   span // value of the model
	choices int  // index of the choices, -1 if there are none
	empty   bool
	failed  bool
	usage   []byte // the usage object
	groq    []byte // one more object that may have usage
	timings []byte
}

// chunk walks through the top level of a chunk.
func (a *reader) chunk(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	text, at := a.Frame(ev)
	w := splice.Copy(dst, text)
	c := splice.Members(text, at)
	p := parts{choices: -1}
	for c.Next() {
		a.member(&c, &w, &p)
	}
	reported := a.takeUsage(&p, text)
	switch {
	case p.failed:
		a.Fail(ev.Data)
		return dst, format.Failure
	case reported && !a.asked && (p.choices < 0 || p.empty):
		return dst, format.Other
	}
	a.learn(text[at:], span{p.model.start - at, p.model.end - at})
	kind := format.Other
	if p.choices >= 0 {
		kind = a.deltas(text[p.choices:])
	}
	return w.Finish(), kind
}

// member reads one member of the top level, and changes what the client must not see.
func (a *reader) member(c *splice.Cursor, w *splice.Writer, p *parts) {
	null := c.Kind() == jsonspan.KindNull
	switch string(c.Name()) {
	case "id":
		a.SetID(c.Value())
	case "model":
		p.model = span{c.Start(), c.End()}
		if !bytes.Equal(c.Value(), a.Model) {
			c.Set(w, a.Model)
		}
	case "choices":
		p.choices = c.Start()
		it := splice.Elements(c.Value(), 0)
		p.empty = !it.Next()
	case "error":
		if p.failed = !null; null {
			c.Drop(w) // one SDK takes the mere name for a failure
		}
	case "usage":
		if p.usage = c.Value(); null && !a.asked {
			c.Drop(w)
		}
	case "x_groq":
		p.groq = c.Value()
		if e, ok := jsonspan.Find(p.groq, "error"); ok && jsonspan.KindOf(e) != jsonspan.KindNull {
			p.failed = true
		}
	case "timings":
		p.timings = c.Value()
	}
}

// takeUsage reads usage from the first place that has it; the last of a stream counts.
// It tells whether there was any.
func (a *reader) takeUsage(p *parts, text []byte) bool {
	u, ok := readUsage(p.usage)
	if !ok && p.groq != nil {
		raw, _ := jsonspan.Find(p.groq, "usage")
		u, ok = readUsage(raw)
	}
	if !ok && p.choices >= 0 && !p.empty && bytes.Contains(text[p.choices:], []byte(`"usage"`)) {
		raw, _ := jsonspan.Find(text[p.choices:], "0", "usage")
		u, ok = readUsage(raw)
	}
	if !ok && !a.Reported && p.timings != nil {
		u, ok = readTimings(p.timings)
	}
	if ok {
		a.Used, a.Reported = u, true
	}
	return ok
}

// learn notes how a chunk begins, if its model stands before its content: that part is
// then the same in every chunk.
func (a *reader) learn(data []byte, model span) {
	a.start, a.renamed = a.start[:0], a.renamed[:0]
	if model.end <= 0 || bytes.Contains(data[:model.start], []byte(`"choices"`)) {
		return
	}
	a.start = append(a.start, data[:model.end]...)
	if !bytes.Equal(data[model.start:model.end], a.Model) {
		a.renamed = append(append(a.renamed, data[:model.start]...), a.Model...)
	}
}

// Finish adds the end that some providers leave out after a complete answer.
func (a *reader) Finish(dst []byte) (out []byte, ok bool) {
	if a.done {
		return dst, true
	}
	if a.finished < max(a.choices, 1) {
		return dst, false
	}
	a.done = true
	return append(dst, doneEvent...), true
}
