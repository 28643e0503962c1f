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

// reader reads an answer of the format video jobs.
type reader struct {
	answer.Base
	clientID []byte // the id of the job for the client, as JSON; empty keeps the provider's id
	// seconds and size are those of the request, for a job object that has none.
	seconds int64
	size    string
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// NewAnswer returns the reader of one answer about a job.
func (Dialect) NewAnswer(cfg format.AnswerConfig) format.Answer {
	a := readers.Get().(*reader)
	a.Begin(cfg)
	if a.clientID = a.clientID[:0]; cfg.ID != "" {
		a.clientID = jsonspan.AppendString(a.clientID, cfg.ID)
	}
	a.seconds, a.size = 0, ""
	if cfg.Request != nil {
		a.seconds, a.size = cfg.Request.Seconds, cfg.Request.Size
	}
	return a
}

func (a *reader) Release() { readers.Put(a) }

// JSON reads the object of a job. Only a completed job has usage.
func (a *reader) JSON(dst, body []byte) (out []byte, ok bool) {
	j, ok := ReadJob(body)
	if !ok {
		a.RecordFailure(body)
		return dst, false
	}

	if a.Reported = j.Status == Completed; a.Reported {
		a.Total = price.Usage{Seconds: j.Seconds, Size: j.Size}
		if j.Seconds == 0 {
			a.Total.Seconds = a.seconds
		}
		if j.Size == "" {
			a.Total.Size = a.size
		}
	}

	w := jsonspan.NewSplicer(dst, body)
	c := jsonspan.ObjectAt(body, 0)
	for c.Next() {
		a.member(&c, &w, &j)
	}

	if !w.Changed() {
		return body, true
	}

	return w.Finish(), true
}

// member changes one member into the form that clients of the format expect. Members beyond those of the format are left
// out: they may contain signed addresses and identifiers of the provider.
func (a *reader) member(c *jsonspan.ObjectCursor, w *jsonspan.Splicer, j *Job) {
	var value []byte
	keep := true
	switch string(c.DecodedName()) {
	case "id":
		a.SetID(c.Value())
		value = a.clientID
	case "object":
		value = []byte(`"video"`)
	case "model":
		value = a.Model
	case "status":
		value = jsonspan.AppendString(nil, string(j.Status))
	case "seconds":
		if keep = j.Seconds > 0 || c.Kind() == jsonspan.KindNull; j.Seconds > 0 {
			value = strconv.AppendQuote(nil, strconv.FormatInt(j.Seconds, 10))
		}
	case "error":
		value = j.clientError()
	case "remixed_from_video_id":
		value = []byte("null")
	case "progress", "created_at", "completed_at", "expires_at":
		keep = isPlainNumber(c.Value()) || c.Kind() == jsonspan.KindNull
	case "prompt", "size":
		keep = c.Kind() == jsonspan.KindString || c.Kind() == jsonspan.KindNull
	default:
		keep = false
	}

	switch {
	case !keep:
		c.Drop(w)
	case len(value) > 0 && !bytes.Equal(c.Value(), value):
		c.Set(w, value)
	}
}

// maxDigits is the length of the longest number that clients get.
const maxDigits = 20

// isPlainNumber reports whether a value is a number without an exponent: clients read it, and the control plane stores it.
func isPlainNumber(value []byte) bool {
	return jsonspan.KindOf(value) == jsonspan.KindNumber && len(value) <= maxDigits && !bytes.ContainsAny(value, "eE")
}

// clientError returns the error member with the two members that clients get, null if the job has no error.
func (j *Job) clientError() []byte {
	if j.ErrorCode == "" && j.ErrorMessage == "" {
		return []byte("null")
	}
	b := append([]byte(`{"code":`), jsonspan.AppendString(nil, j.ErrorCode)...)
	b = append(b, `,"message":`...)
	return append(jsonspan.AppendString(b, j.ErrorMessage), '}')
}

// Event passes an event on. The format has no streams.
func (a *reader) Event(dst []byte, ev sse.Event) ([]byte, format.Kind) {
	return a.PassThrough(dst, ev)
}

// Finish reports that no stream is complete.
func (a *reader) Finish(dst []byte) (out []byte, ok bool) { return dst, false }

// AppendError appends an error as an event, in case a provider sent a stream although the format has none.
func (*reader) AppendError(dst []byte, e *apierr.Error, requestID string) []byte {
	return sse.AppendEvent(dst, "error", e.Envelope(requestID))
}
