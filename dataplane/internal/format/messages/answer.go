package messages

import (
	"bytes"
	"sync"
	"unicode/utf8"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/apierr"
	"modelgateway/shared/price"
)

// reader reads an answer of the format messages.
type reader struct {
	answer.Base
	// iterations is the usage of summaries and advisors, which the totals do not include.
	iterations   price.Usage
	oneHourCache bool // whether all cache marks of the request are for one hour
	// begun reports whether a block has begun, stopped whether the stop reason has come, ended whether the stream has ended.
	begun, stopped, ended bool
	// thinks reports whether the block that began last is one of thinking.
	thinks bool
}

var readers = sync.Pool{New: func() any { return new(reader) }}

func (Dialect) NewAnswer(cfg format.AnswerConfig) format.Answer {
	a := readers.Get().(*reader)
	a.Begin(cfg)
	a.iterations, a.begun, a.stopped, a.ended, a.thinks = price.Usage{}, false, false, false, false
	a.oneHourCache = usesOneHourCache(cfg.Request)
	return a
}

func (a *reader) Release() { readers.Put(a) }

// Usage returns the usage of the totals so far. Until the last of them have come, the output is a placeholder and is
// left out.
func (a *reader) Usage() (usage price.Usage, reported bool) {
	usage = a.usage()
	if !a.Reported {
		usage.Output, usage.Reasoning = 0, 0
	}
	return usage, a.Reported
}

// JSON reads a complete message: one with content that is no error.
func (a *reader) JSON(dst, body []byte) (out []byte, ok bool) {
	w := jsonspan.NewSplicer(dst, body)
	m := a.message(&w, body, 0)
	items := jsonspan.ArrayAt(m.content, 0)
	if m.content == nil || m.failed || !m.complete || !m.stopped && !items.Next() {
		a.RecordFailure(body)
		return dst, false
	}
	a.Reported = (m.usage || a.ReportElsewhere(body) >= answer.Placeholder) && a.Counts.StatesOutput()
	a.measure(m.content)
	if !w.Changed() {
		return body, true
	}
	return w.Finish(), true
}

// measure adds the texts of the blocks that the model has written. The provider has written the results of its tools.
func (a *reader) measure(content []byte) {
	it := jsonspan.ArrayAt(content, 0)
	for it.Next() {
		block := content[it.Start():]
		kind, _ := jsonspan.Find(block, "type")
		if name, _ := jsonspan.Text(nil, kind); bytes.HasSuffix(name, []byte("_tool_result")) {
			continue
		}
		a.AddTexts(content, it.Start(), isOutput)
		if input, _ := jsonspan.Find(block, "input"); len(input) > len("{}") { // a stream has it as partial_json
			a.Delivered.Add(answer.Size{Bytes: int64(len(input)), Chars: int64(utf8.RuneCount(input))})
		}
	}
}

// isOutput reports whether a member of a block was written by the model.
func isOutput(name []byte) bool {
	switch string(name) {
	case "text", "thinking", "partial_json", "content":
		return true
	}
	return false
}

// Event reads one event. Only events with usage are changed.
func (a *reader) Event(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	if ev.Comment || ev.Extra {
		ev = a.Visible(ev)
	}
	if answer.IsIgnored(ev) {
		return a.PassThrough(dst, ev)
	}
	if a.Failed() || answer.IsDone(ev.Data) { // some providers send it although the format has no such event
		return dst, format.Other
	}

	kind := string(answer.Type(ev))
	if kind == "content_block_delta" {
		if i := bytes.Index(ev.Data, []byte(deltaMember)); i >= 0 {
			a.begun = true
			return ev.AppendTerminated(dst), a.delta(ev.Data, i+len(deltaMember))
		}
	}

	if explicit, flat := answer.FindError(ev.Data); (explicit || flat) && !answer.IsOwn(ev, isEvent) {
		return a.Fail(dst, ev.Data)
	}

	switch kind {
	case "content_block_start":
		a.begun = true
		a.block(ev.Data)
	case "content_block_stop":
		a.Now.Ending = !a.thinks // what follows the last block is the usage
	case "message_start":
		return a.start(dst, ev)
	case "message_delta":
		return a.end(dst, ev), format.Other
	case "message_stop":
		if !a.begun && !a.stopped {
			return a.Fail(dst, ev.Data) // the end of nothing
		}
		a.ended = true
		return ev.AppendTerminated(dst), format.Terminal
	case "error":
		return a.Fail(dst, ev.Data)
	}

	return ev.AppendTerminated(dst), format.Other
}

// block reads the event in which a block of the content begins.
func (a *reader) block(data []byte) {
	raw, _ := jsonspan.Find(data, "content_block")
	a.Now.Ending, a.thinks = false, false
	switch jsonspan.FindText(raw, "type") {
	case "thinking", "redacted_thinking":
		a.Now.Hides, a.thinks = true, true
	case "server_tool_use":
		if jsonspan.FindText(raw, "name") == "web_search" {
			a.Calls++
		}
	}
}

// isEvent reports whether the format has events of a type.
func isEvent(kind []byte) bool {
	return string(kind) == "ping" || bytes.HasPrefix(kind, []byte("message_")) || bytes.HasPrefix(kind, []byte("content_block_"))
}

const deltaMember = `"delta":`

// delta measures the text of the delta at index i.
func (a *reader) delta(data []byte, i int) format.Kind {
	if a.AddTexts(data, i, isOutput) == 0 {
		return format.Other
	}
	if a.Now.Hides && !a.Now.Shows {
		a.Now.Shows = bytes.Contains(data[i:], []byte(`"thinking_delta"`))
	}
	return format.Content
}

// start reads the message that a stream begins with.
func (a *reader) start(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	w, c, text := a.BeginRewrite(dst, ev)
	for c.Next() {
		if string(c.DecodedName()) == "message" {
			m := a.message(&w, text, c.Start())
			c.SetEnd(m.end)
			a.Counts.ForgetOutput() // a placeholder
		}
	}
	return w.Finish(), format.Other
}

// end reads the totals that come with the stop reason.
func (a *reader) end(dst []byte, ev sse.Event) []byte {
	w, c, text := a.BeginRewrite(dst, ev)
	for c.Next() {
		switch string(c.DecodedName()) {
		case "usage":
			c.SetEnd(answer.DropCosts(&w, text, c.Start()))
			a.Reported = a.report(c.Value()) && a.Counts.StatesOutput() || a.Reported
		case "delta":
			reason, _ := jsonspan.Find(c.Value(), "stop_reason")
			a.stopped = a.stopped || answer.IsReason(reason)
			a.Now.Ending = a.stopped
		}
	}
	if !a.Reported && a.ReportElsewhere(ev.Data) >= answer.Placeholder {
		a.Reported = a.Counts.StatesOutput()
	}
	return w.Finish()
}

// messageParts are the parts of a message that the reader needs.
type messageParts struct {
	content  []byte // nil if there is none
	failed   bool   // whether it is an error object
	stopped  bool   // whether it has a stop reason
	usage    bool
	complete bool
	end      int // index after the message
}

// message reads the object at index at of text, and changes or drops members that the client must not see.
func (a *reader) message(w *jsonspan.Splicer, text []byte, at int) (m messageParts) {
	c := jsonspan.ObjectAt(text, at)
	for c.Next() {
		switch string(c.DecodedName()) {
		case "id":
			a.SetID(c.Value())
		case "model":
			if !bytes.Equal(c.Value(), a.Model) {
				c.Set(w, a.Model)
			}
		case "type":
			m.failed = m.failed || string(c.Value()) == `"error"`
		case "error":
			m.failed = m.failed || answer.IsError(c.Value())
		case "stop_reason":
			m.stopped = answer.IsReason(c.Value())
		case "content":
			if c.Kind() == jsonspan.KindArray {
				m.content = c.Value()
			}
		case "usage":
			c.SetEnd(answer.DropCosts(w, text, c.Start()))
			m.usage = a.report(c.Value())
		default:
			if answer.IsCost(c.DecodedName()) {
				c.Drop(w)
			}
		}
	}

	m.end, m.complete = c.SkipRest(), c.Alone()
	return m
}

// Finish adds the last event if it alone is missing.
func (a *reader) Finish(dst []byte) (out []byte, ok bool) {
	switch {
	case a.ended:
		return dst, true
	case !a.stopped:
		return dst, false
	}
	a.ended = true
	return sse.AppendEvent(dst, "message_stop", []byte(`{"type":"message_stop"}`)), true
}

// AppendError appends an error in the format's own envelope, which ends the stream.
func (*reader) AppendError(dst []byte, e *apierr.Error, requestID string) []byte {
	return sse.AppendEvent(dst, "error", e.MessagesEnvelope(requestID))
}
