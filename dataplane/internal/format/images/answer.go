package images

import (
	"bytes"
	"sync"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/format/internal/answer"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/apierr"
	"modelgateway/shared/price"
)

// reader reads an answer of the format image generation.
type reader struct {
	answer.Base
	// size and quality are those of the request, for answers that report none.
	size, quality string
	requested     int64
	// frames is how many images an animation counts as.
	frames int64
	// counted reports whether a report of usage had a count.
	counted bool
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// echoed are the replaced parameters that an answer may repeat.
var echoed = []string{"user", "safety_identifier"}

func (Dialect) NewAnswer(cfg format.AnswerConfig) format.Answer {
	a := readers.Get().(*reader)
	a.Begin(cfg)
	a.size, a.quality, a.requested, a.frames, a.counted = "", "", minImages, 1, false
	if r := cfg.Request; r != nil {
		a.size, a.quality, a.requested, a.frames = r.Size, r.Quality, r.Images, max(r.Frames, 1)
		a.Echo.Capture(r, echoed)
	}
	return a
}

func (a *reader) Release() { readers.Put(a) }

// JSON reads a complete answer: one with an image and without an error.
func (a *reader) JSON(dst, body []byte) (out []byte, ok bool) {
	w := jsonspan.NewSplicer(dst, body)
	c := jsonspan.ObjectAt(body, 0)
	whole, failed, flat := a.readAnswer(&w, &c, body)
	if a.Total.Images == 0 || failed || !whole {
		a.Total = price.Usage{}
		if whole && !failed && !flat { // whatever came in place of the images
			a.RecordNothing(body)
		} else {
			a.RecordFailure(body)
		}
		return dst, false
	}

	a.Reported = !a.Unreadable
	if !w.Changed() {
		return body, true
	}

	return w.Finish(), true
}

// readAnswer adds the usage of an answer, or of the event of one finished image. It changes or drops members that the
// client must not see. failed reports whether the answer has an error, flat whether it has a text or code of one.
func (a *reader) readAnswer(w *jsonspan.Splicer, c *jsonspan.ObjectCursor, text []byte) (whole, failed, flat bool) {
	a.Total.Size, a.Total.Quality = a.size, a.quality
	counted := a.counted // by an earlier event
	a.counted = false
	var elsewhere []byte // a report in a place of other providers
	var ofEach [][]byte  // a report of each image
	found, listed := false, false
	for c.Next() {
		switch string(c.DecodedName()) {
		case "data":
			n, reports, end := countImages(w, text, c.Start())
			a.Total.Images += n * a.frames
			listed = true
			ofEach = reports
			c.SetEnd(end)
		case "b64_json", "url":
			found = found || answer.IsPicture(c.Value())
		case "usage":
			c.SetEnd(answer.DropCosts(w, text, c.Start()))
			a.addUsage(c.Value())
		case "svg_usage":
			c.SetEnd(answer.DropCosts(w, text, c.Start()))
			a.addSVGUsage(c.Value())
		case "size":
			a.Total.Size = statedOr(c.Value(), a.size)
		case "quality":
			a.Total.Quality = statedOr(c.Value(), a.quality)
		case "model":
			if !bytes.Equal(c.Value(), a.Model) {
				c.Set(w, a.Model)
			}
		case "error":
			failed = answer.IsError(c.Value())
		default:
			flat = flat || answer.IsErrorText(c.DecodedName()) && answer.IsSet(c.Value())
			if elsewhere == nil {
				elsewhere = usagereport.In(c.DecodedName(), c.Value())
			}
			if answer.IsCost(c.DecodedName()) {
				c.Drop(w)
			} else if value, changed := a.Echo.Of(c.DecodedName(), c.Value()); changed {
				c.Set(w, value)
			}
		}
	}

	c.SkipRest()
	if found && !listed { // the event of an image has it in place of a list
		a.Total.Images += a.frames
	}

	switch {
	case a.counted:
	case elsewhere != nil:
		a.addUsage(elsewhere)
	default:
		for _, raw := range ofEach {
			a.addUsage(raw)
		}
	}
	a.counted = a.counted || counted
	return c.Alone(), failed, flat
}

// countImages counts the elements of an answer's data that are images, and returns their own reports of usage and the index
// after them.
func countImages(w *jsonspan.Splicer, text []byte, at int) (n int64, reports [][]byte, end int) {
	it := jsonspan.ArrayAt(text, at)
	for it.Next() {
		c := jsonspan.ObjectAt(text, it.Start())
		found := false
		for c.Next() {
			switch string(c.DecodedName()) {
			case "b64_json", "url":
				found = found || answer.IsPicture(c.Value())
			case "usage":
				c.SetEnd(answer.DropCosts(w, text, c.Start()))
				reports = append(reports, c.Value())
			}
		}
		if found {
			n++
		}
		it.SetEnd(c.SkipRest())
	}

	return n, reports, it.SkipRest()
}

// statedOr returns the value that an answer states, otherwise the requested one.
func statedOr(raw []byte, requested string) string {
	text, _ := jsonspan.Text(nil, raw)
	if value := explicit(format.Label(text)); value != "" {
		return value
	}
	return requested
}

// addUsage adds a usage object.
func (a *reader) addUsage(raw []byte) {
	c, found, readable := usagereport.Read(raw)
	if !readable {
		a.Unreadable = true
		return
	}
	a.counted = a.counted || found
	u, ambiguous := c.Picture()
	a.Ambiguous = a.Ambiguous || ambiguous
	a.Total.Input += u.Input
	a.Total.CachedInput += u.CachedInput
	a.Total.ImageIn += u.ImageIn
	a.Total.Output += u.Output
	a.Total.Reasoning += u.Reasoning
	a.Total.ImageOut += u.ImageOut
}

// addSVGUsage adds the usage of the model that draws SVG.
func (a *reader) addSVGUsage(raw []byte) {
	if jsonspan.KindOf(raw) != jsonspan.KindObject {
		return
	}

	c, _, readable := usagereport.Read(raw)
	if !readable {
		a.Unreadable = true
		return
	}

	u, ambiguous := c.Inside()
	a.Ambiguous = a.Ambiguous || ambiguous
	second := &a.Total.Secondary
	model, _ := jsonspan.Find(raw, "model")
	name, _ := jsonspan.Text(nil, model)
	second.Kind, second.Model = price.SVG, format.Label(name)
	second.Input += u.Input
	second.CachedInput += u.CachedInput
	second.Output += u.Output
	second.Reasoning += u.Reasoning
}

// Event reads one event, in case a provider sends a stream.
func (a *reader) Event(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	if ev.Comment || ev.Extra {
		ev = a.Visible(ev)
	}
	if answer.IsIgnored(ev) {
		return a.PassThrough(dst, ev)
	}
	if answer.IsDone(ev.Data) {
		return ev.AppendTerminated(dst), format.Other
	}

	kind := answer.Type(ev)
	if explicit, flat := answer.FindError(ev.Data); (explicit || flat) && !answer.IsOwn(ev, isEvent) {
		return a.Fail(dst, ev.Data)
	}

	switch string(kind) {
	case "image_generation.completed":
		w, c, text := a.BeginRewrite(dst, ev)
		a.readAnswer(&w, &c, text)
		a.Reported = !a.Unreadable
		return w.Finish(), format.Content
	case "image_generation.partial_image":
		return ev.AppendTerminated(dst), format.Other
	case "error":
		return a.Fail(dst, ev.Data)
	}

	w, c, text := a.BeginRewrite(dst, ev)
	a.readLate(&w, &c, text)
	return w.Finish(), format.Other
}

// readLate reads an event that is no image: some providers report the usage of all images in an event after them.
func (a *reader) readLate(w *jsonspan.Splicer, c *jsonspan.ObjectCursor, text []byte) {
	var report []byte
	for c.Next() {
		switch string(c.DecodedName()) {
		case "usage":
			c.SetEnd(answer.DropCosts(w, text, c.Start()))
			report = c.Value()
		case "model":
			if !bytes.Equal(c.Value(), a.Model) {
				c.Set(w, a.Model)
			}
		default:
			if answer.IsCost(c.DecodedName()) {
				c.Drop(w)
			} else if report == nil {
				report = usagereport.In(c.DecodedName(), c.Value())
			}
		}
	}

	if report != nil && !a.counted {
		a.addUsage(report)
		a.Reported = !a.Unreadable
	}
}

// isEvent reports whether the format has, or may come to have, events of a type.
func isEvent(kind []byte) bool { return bytes.HasPrefix(kind, []byte("image_generation.")) }

// Finish reports whether all images have come.
func (a *reader) Finish(dst []byte) (out []byte, ok bool) {
	return dst, a.Total.Images >= max(a.requested, 1)*a.frames
}

// AppendError appends an error as an event, which ends the stream.
func (*reader) AppendError(dst []byte, e *apierr.Error, requestID string) []byte {
	data := append([]byte(`{"type":"error",`), e.Envelope(requestID)[1:]...)
	return sse.AppendEvent(dst, "error", data)
}
