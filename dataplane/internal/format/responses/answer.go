package responses

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
)

// reader reads an answer of the format responses.
type reader struct {
	answer.Base
	// sequence is the number of the last event, -1 before the first.
	sequence int64
	// created is the client's version of the response in the first event. The failed response that the gateway sends is
	// derived from it.
	created []byte
	// begun reports whether the response has an item or a part of one.
	begun, ended bool
	// open is the number of items that are not done.
	open int
	// done is the size of the texts of those that are.
	done answer.Size
	// drawn reports whether a version of an image has come whose item is not done.
	drawn bool
	// unexplained reports whether the response has failed without a reason, which may follow in an event of its own.
	unexplained bool
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// echoed are the replaced parameters that a response repeats.
var echoed = []string{"user", "safety_identifier", "prompt_cache_key", "metadata", "store"}

func (Dialect) NewAnswer(cfg format.AnswerConfig) format.Answer {
	a := readers.Get().(*reader)
	a.Begin(cfg)
	a.Echo.Capture(cfg.Request, echoed)
	a.sequence, a.created, a.begun, a.ended, a.unexplained = -1, answer.Trim(a.created), false, false, false
	a.open, a.done, a.drawn = 0, answer.Size{}, false
	return a
}

func (a *reader) Release() { readers.Put(a) }

// JSON reads a complete response: one with output that did not fail.
func (a *reader) JSON(dst, body []byte) (out []byte, ok bool) {
	w := jsonspan.NewSplicer(dst, body)
	p, whole := a.response(&w, body, 0)
	a.recordUsage(&p, body)
	if p.failed || p.output == nil || !whole || p.isEmpty() {
		a.RecordFailure(body)
		return dst, false
	}
	a.Delivered = measure(p.output)
	if !w.Changed() {
		return body, true
	}
	return w.Finish(), true
}

// measure returns the size of the texts that the model has written in a list of items. The provider has written the results
// of its tools.
func measure(output []byte) answer.Size {
	var sum answer.TextSum
	it := jsonspan.ArrayAt(output, 0)
	for it.Next() {
		addItem(&sum, output, it.Start())
	}
	return sum.Size
}

// addItem adds the texts of the item at index at.
func addItem(sum *answer.TextSum, text []byte, at int) {
	switch kind := jsonspan.FindText(text[at:], "type"); {
	case kind == "file_search_call", kind == "mcp_list_tools", strings.HasSuffix(kind, "_output"):
		return
	}
	answer.SumTexts(sum, text, at, isOutput)
}

// isOutput reports whether a member of an output item was written by the model.
func isOutput(name []byte) bool {
	switch string(name) {
	case "text", "refusal", "name", "arguments", "input", "code", "command", "commands", "diff":
		return true
	}
	return false
}

// Event reads one event. Only events that carry the response are changed.
func (a *reader) Event(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	if ev.Comment || ev.Extra {
		ev = a.Visible(ev)
	}
	if answer.IsIgnored(ev) {
		return a.PassThrough(dst, ev)
	}
	if answer.IsDone(ev.Data) {
		return dst, format.Other // some providers send it although the format has no such event
	}

	kind := answer.Type(ev)
	if a.Failed() {
		return a.afterFailure(dst, ev, kind)
	}
	if a.unexplained && string(kind) != "error" {
		return dst, format.Other
	}

	before := a.sequence
	a.recordNumber(ev.Data)
	dst, result := a.event(dst, ev, kind)
	if result == format.Failure || a.unexplained {
		a.sequence = before // the client does not get the event, so its number can be used again
	}

	return dst, result
}

func (a *reader) event(dst []byte, ev sse.Event, kind []byte) ([]byte, format.Kind) {
	switch {
	case string(kind) == "response.audio.delta": // the length of audio says nothing about tokens of text
		a.begun = true
		if i := bytes.Index(ev.Data, []byte(deltaMember)); i >= 0 {
			a.Audio += answer.SizeOf(answer.StringAt(ev.Data, i+len(deltaMember))).Bytes
		}
		return ev.AppendTerminated(dst), format.Content
	case bytes.HasPrefix(kind, []byte("response.output_item.")):
		a.begun = true
		a.item(ev.Data, bytes.HasSuffix(kind, []byte(".done")))
	case bytes.HasSuffix(kind, []byte(".delta")):
		if i := bytes.Index(ev.Data, []byte(deltaMember)); i >= 0 {
			a.begun = true
			a.Delivered.Add(answer.SizeOf(answer.StringAt(ev.Data, i+len(deltaMember))))
			a.Now.Shows = a.Now.Shows || string(kind) == "response.reasoning_text.delta"
			return ev.AppendTerminated(dst), format.Content
		}
	case string(kind) == "response.image_generation_call.partial_image":
		if version, _ := jsonspan.Find(ev.Data, "partial_image_b64"); answer.IsPicture(version) {
			a.draw()
			a.drawn = true
		}
	case string(kind) == "keepalive":
		return append(dst, sse.Comment...), format.Other
	case string(kind) == "error":
		return a.Fail(dst, ev.Data)
	}

	if explicit, flat := answer.FindError(ev.Data); (explicit || flat) && !answer.IsOwn(ev, isEvent) {
		return a.Fail(dst, ev.Data)
	}

	switch string(kind) {
	case "response.created", "response.queued", "response.in_progress",
		"response.completed", "response.incomplete", "response.failed":
		return a.responseEvent(dst, ev, string(kind))
	}

	return ev.AppendTerminated(dst), format.Other
}

// item reads an event in which an item of the output begins or is done.
func (a *reader) item(data []byte, done bool) {
	raw, _ := jsonspan.Find(data, "item")
	kind := jsonspan.FindText(raw, "type")
	a.Now.Hides = a.Now.Hides || kind == "reasoning"
	if !done {
		a.open++
		a.Now.Ending = false
		return
	}

	a.open = max(a.open-1, 0)
	var sum answer.TextSum
	addItem(&sum, raw, 0)
	a.done.Add(sum.Size)
	a.deliver(a.done)
	a.Now.Ending = a.open == 0 && kind != "reasoning" // what follows the last item is the usage
	switch kind {
	case "image_generation_call":
		if result, _ := jsonspan.Find(raw, "result"); answer.IsPicture(result) {
			a.draw()
		}
		a.drawn = false
	case "web_search_call", "code_interpreter_call", "file_search_call", "mcp_call":
		made, _ := toolCalls(slices.Concat([]byte{'['}, raw, []byte{']'}))
		a.Calls += made
	}
}

// draw counts an image, unless an earlier version of it has come.
func (a *reader) draw() {
	if !a.drawn {
		a.ToolImages++
	}
}

// deliver counts texts that have come as a whole, of which some or all have come in parts before.
func (a *reader) deliver(whole answer.Size) {
	if whole.Bytes > a.Delivered.Bytes {
		a.Delivered = whole
	}
}

// isEvent reports whether the format has, or may come to have, events of a type.
func isEvent(kind []byte) bool { return bytes.HasPrefix(kind, []byte("response.")) }

// afterFailure reads the usage that a failed response reports. It passes no event on.
func (a *reader) afterFailure(dst []byte, ev sse.Event, kind []byte) ([]byte, format.Kind) {
	if string(kind) == "response.failed" {
		a.responseEvent(nil, ev, string(kind))
	}
	return dst, format.Other
}

const deltaMember = `"delta":`

// recordNumber records the event's number.
func (a *reader) recordNumber(data []byte) {
	const name = `"sequence_number":`
	_, after, ok := bytes.Cut(data, []byte(name))
	if !ok {
		a.sequence++
		return
	}
	n, digits := int64(0), bytes.TrimLeft(after, " ")
	for _, c := range digits[:min(len(digits), 18)] {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + int64(c-'0')
	}
	a.sequence = n
}

// responseEvent reads an event that carries the response.
func (a *reader) responseEvent(dst []byte, ev sse.Event, kind string) ([]byte, format.Kind) {
	w, c, text := a.BeginRewrite(dst, ev)
	var p responseParts
	for c.Next() {
		if string(c.DecodedName()) != "response" || c.Kind() != jsonspan.KindObject {
			continue
		}
		p, _ = a.response(&w, text, c.Start())
		c.SetEnd(p.end)
		if kind == "response.created" {
			a.recordCreated(text[c.Start():c.End()])
		}
	}

	whole := kind == "response.completed" || kind == "response.incomplete"
	if whole || kind == "response.failed" || p.failed {
		a.recordUsage(&p, ev.Data) // an earlier report does not cover the whole response
	} else {
		a.recordPart(&p)
	}

	if kind == "response.failed" || p.failed {
		if !p.failed || !p.explained {
			a.unexplained = true
			return dst, format.Other
		}
		return a.Fail(dst, ev.Data)
	}

	if kind == "response.completed" && !a.begun && p.isEmpty() {
		return a.Fail(dst, ev.Data)
	}

	if whole {
		a.deliver(measure(p.output))
		a.ended = true
		return w.Finish(), format.Terminal
	}

	return w.Finish(), format.Other
}

// recordCreated records the client's version of the response in the first event.
func (a *reader) recordCreated(response []byte) {
	w := jsonspan.NewSplicer(a.created[:0], response)
	a.response(&w, response, 0)
	a.created = w.Finish()
}

// responseParts are the parts of a response that the reader needs.
type responseParts struct {
	failed    bool
	explained bool   // whether it says why it failed, or why it is incomplete
	output    []byte // nil if there is none
	usage     []byte
	toolUsage []byte
	end       int // index after the response
}

// isEmpty reports whether the response has no item and does not say why.
func (p *responseParts) isEmpty() bool {
	items := jsonspan.ArrayAt(p.output, 0)
	return !p.explained && !items.Next()
}

// response reads the response at index at of text, and changes or drops members that the client must not see. whole is
// false if the response is not an object or is truncated.
func (a *reader) response(w *jsonspan.Splicer, text []byte, at int) (p responseParts, whole bool) {
	c := jsonspan.ObjectAt(text, at)
	for c.Next() {
		switch string(c.DecodedName()) {
		case "id":
			a.SetID(c.Value())
		case "model":
			if !bytes.Equal(c.Value(), a.Model) {
				c.Set(w, a.Model)
			}
		case "error":
			p.explained = p.explained || answer.IsError(c.Value())
			p.failed = p.failed || p.explained
		case "incomplete_details":
			p.explained = p.explained || c.Kind() == jsonspan.KindObject
		case "status":
			p.failed = p.failed || string(c.Value()) == `"failed"`
		case "output":
			if c.Kind() == jsonspan.KindArray {
				p.output = c.Value()
			}
		case "service_tier":
			a.SetServiceTier(c.Value())
		case "usage":
			c.SetEnd(answer.DropCosts(w, text, c.Start()))
			p.usage = c.Value()
		case "tool_usage":
			c.SetEnd(answer.DropCosts(w, text, c.Start()))
			p.toolUsage = c.Value()
		default:
			if answer.IsCost(c.DecodedName()) {
				c.Drop(w)
			} else if value, changed := a.Echo.Of(c.DecodedName(), c.Value()); changed {
				c.Set(w, value)
			}
		}
	}

	p.end = c.SkipRest()
	return p, c.Alone()
}

// Finish reports whether the response is complete. It cannot complete one, because the last event carries the whole
// response.
func (a *reader) Finish(dst []byte) (out []byte, ok bool) { return dst, a.ended }
