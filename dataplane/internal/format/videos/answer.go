package videos

import (
	"bytes"
	"strconv"
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
	newID []byte // the id that the client knows, as JSON; empty keeps the provider's
	// seconds and size are those of the request, for a job that states none.
	seconds int64
	size    string
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// NewAnswer returns the reader of one answer about a job.
func (Dialect) NewAnswer(cfg format.AnswerConfig) format.Answer {
	a := readers.Get().(*reader)
	a.Begin(cfg)
	if a.newID = a.newID[:0]; cfg.ID != "" {
		a.newID = jsonspan.AppendString(a.newID, cfg.ID)
	}
	a.seconds, a.size = 0, ""
	if cfg.Request != nil {
		a.seconds, a.size = cfg.Request.Seconds, cfg.Request.Size
	}
	return a
}

// Release gives the reader back.
func (a *reader) Release() { readers.Put(a) }

// JSON reads the object of a job. Only a completed one has used anything.
func (a *reader) JSON(dst, body []byte) (out []byte, ok bool) {
	j, ok := ReadJob(body)
	if !ok {
		a.Fail(body)
		return dst, false
	}
	if a.Reported = j.Status == Completed; a.Reported {
		a.Used = price.Usage{Seconds: j.Seconds, Size: j.Size}
		if j.Seconds == 0 {
			a.Used.Seconds = a.seconds
		}
		if j.Size == "" {
			a.Used.Size = a.size
		}
	}
	w := jsonspan.NewSplicer(dst, body)
	c := jsonspan.ObjectAt(body, 0)
	for c.Next() {
		a.member(body, &c, &w, j)
	}
	if !w.Changed() {
		return body, true
	}
	return w.Finish(), true
}

// member makes one member what clients of the format expect.
func (a *reader) member(text []byte, c *jsonspan.ObjectCursor, w *jsonspan.Splicer, j Job) {
	var value []byte
	switch string(c.Name()) {
	case "id":
		a.SetID(c.Value())
		value = a.newID
	case "model":
		value = a.Model
	case "status":
		value = jsonspan.AppendString(nil, string(j.Status))
	case "seconds":
		if c.Kind() == jsonspan.KindNumber && j.Seconds > 0 {
			value = strconv.AppendQuote(nil, strconv.FormatInt(j.Seconds, 10))
		}
	case "usage":
		c.SetEnd(answer.DropMoney(w, text, c.Start()))
	default:
		if answer.IsMoney(c.Name()) {
			c.Drop(w)
		}
	}
	if len(value) > 0 && !bytes.Equal(c.Value(), value) {
		c.Set(w, value)
	}
}

// Event passes an event on: no job is told of in a stream.
func (a *reader) Event(dst []byte, ev sse.Event) ([]byte, format.Kind) { return answer.Pass(dst, ev) }

// Finish tells that no stream can be complete.
func (a *reader) Finish(dst []byte) (out []byte, ok bool) { return dst, false }

// AppendError appends an error as an event. No video comes as a stream of events, so it
// is for a stream that a provider sent against all rules.
func (*reader) AppendError(dst []byte, e *apierr.Error, requestID string) []byte {
	return sse.AppendEvent(dst, "error", e.Envelope(requestID))
}
