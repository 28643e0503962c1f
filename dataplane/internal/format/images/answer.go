package images

import (
	"bytes"
	"sync"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/apierr"
	"modelgateway/shared/price"
)

// reader is the format.Answer of this format.
type reader struct {
	answer.Base
	// size and quality are those of the request, for answers that state none.
	size, quality string
	wanted        int64
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// echoed are the replaced parameters that an answer may repeat.
var echoed = []string{"user", "safety_identifier"}

// NewAnswer returns the reader of one answer.
func (Dialect) NewAnswer(cfg format.AnswerConfig) format.Answer {
	a := readers.Get().(*reader)
	a.Begin(cfg)
	a.size, a.quality, a.wanted = "", "", minImages
	if r := cfg.Request; r != nil {
		a.size, a.quality, a.wanted = r.Size, r.Quality, r.Images
		a.Echo.Take(r, echoed)
	}
	return a
}

// Release gives the reader back.
func (a *reader) Release() { readers.Put(a) }

// JSON reads a whole answer: one that has a picture and no error.
func (a *reader) JSON(dst, body []byte) (out []byte, ok bool) {
	w := jsonspan.NewSplicer(dst, body)
	c := jsonspan.ObjectAt(body, 0)
	whole, failed := a.read(&w, &c, body)
	if a.Used.Images == 0 || failed || !whole {
		a.Used = price.Usage{}
		a.Fail(body)
		return dst, false
	}
	a.Reported = true
	if !w.Changed() {
		return body, true
	}
	return w.Finish(), true
}

// read adds what an answer, or the event of one finished picture, has to the usage.
func (a *reader) read(w *jsonspan.Splicer, c *jsonspan.ObjectCursor, text []byte) (whole, failed bool) {
	a.Used.Size, a.Used.Quality = a.size, a.quality
	for c.Next() {
		switch string(c.Name()) {
		case "data":
			n, end := pictures(text, c.Start())
			a.Used.Images += n
			c.SetEnd(end)
		case "b64_json":
			a.Used.Images++
		case "usage":
			c.SetEnd(answer.DropMoney(w, text, c.Start()))
			a.add(c.Value())
		case "svg_usage":
			c.SetEnd(answer.DropMoney(w, text, c.Start()))
			a.addSecond(c.Value())
		case "size":
			a.Used.Size = stated(c.Value(), a.size)
		case "quality":
			a.Used.Quality = stated(c.Value(), a.quality)
		case "model":
			if !bytes.Equal(c.Value(), a.Model) {
				c.Set(w, a.Model)
			}
		case "error":
			failed = c.Kind() != jsonspan.KindNull
		default:
			if answer.IsMoney(c.Name()) {
				c.Drop(w)
			} else if value, changed := a.Echo.Of(c.Name(), c.Value()); changed {
				c.Set(w, value)
			}
		}
	}
	c.SkipRest()
	return c.Complete(), failed
}

// pictures counts the elements of an answer's data that are pictures, and returns the
// index after them.
func pictures(text []byte, at int) (n int64, end int) {
	it := jsonspan.ArrayAt(text, at)
	for it.Next() {
		c := jsonspan.ObjectAt(text, it.Start())
		found := false
		for c.Next() {
			switch string(c.Name()) {
			case "b64_json", "url":
				found = found || c.Kind() == jsonspan.KindString && string(c.Value()) != `""`
			}
		}
		if found {
			n++
		}
		it.SetEnd(c.SkipRest())
	}
	return n, it.SkipRest()
}

// stated returns what an answer states, or else the request.
func stated(raw []byte, requested string) string {
	text, _ := jsonspan.Text(nil, raw)
	if value := chosen(format.Label(text)); value != "" {
		return value
	}
	return requested
}

// add adds a usage object.
func (a *reader) add(raw []byte) {
	var output int64
	picture := int64(-1)
	for name, value := range jsonspan.Members(raw) {
		switch string(name) {
		case "input_tokens":
			a.Used.Input += format.Count(value)
		case "input_tokens_details":
			tokens, _ := jsonspan.Find(value, "image_tokens")
			a.Used.ImageIn += format.Count(tokens)
		case "output_tokens":
			output = format.Count(value)
		case "output_tokens_details":
			if tokens, ok := jsonspan.Find(value, "image_tokens"); ok {
				picture = format.Count(tokens)
			}
		}
	}
	if picture < 0 { // it does not say, so all of the output is picture
		picture = output
	}
	a.Used.Output += output
	a.Used.ImageOut += picture
}

// addSecond adds what the model that draws in svg has used.
func (a *reader) addSecond(raw []byte) {
	if jsonspan.KindOf(raw) != jsonspan.KindObject {
		return
	}
	second := &a.Used.Secondary
	second.Kind = price.SVG
	for name, value := range jsonspan.Members(raw) {
		switch string(name) {
		case "model":
			model, _ := jsonspan.Text(nil, value)
			second.Model = format.Label(model)
		case "input_tokens":
			second.Input += format.Count(value)
		case "output_tokens":
			second.Output += format.Count(value)
		case "reasoning_tokens":
			second.Reasoning += format.Count(value)
		}
	}
}

// Event reads one event of a stream, should a provider send one.
func (a *reader) Event(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	if len(ev.Data) == 0 || answer.CutOff(ev) {
		return answer.Pass(dst, ev)
	}
	switch string(answer.Type(ev)) {
	case "image_generation.completed":
		w, c, text := a.Open(dst, ev)
		a.read(&w, &c, text)
		a.Reported = true
		return w.Finish(), format.Content
	case "error":
		a.Fail(ev.Data)
		return dst, format.Failure
	}
	return ev.AppendTerminated(dst), format.Other
}

// Finish tells whether all pictures have come.
func (a *reader) Finish(dst []byte) (out []byte, ok bool) {
	return dst, a.Used.Images >= max(a.wanted, 1)
}

// AppendError appends an error as an event, with which a stream ends.
func (*reader) AppendError(dst []byte, e *apierr.Error, requestID string) []byte {
	data := append([]byte(`{"type":"error",`), e.Envelope(requestID)[1:]...)
	return sse.AppendEvent(dst, "error", data)
}
