// Package videos implements the video format: requests for a video job, and the object that describes its state.
//
// It owns the format's parameter table, requests as JSON and as forms, and the four states of a job, to which the
// states of all providers are mapped. It owns neither the records of jobs nor the content of finished videos.
package videos

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

// Dialect is the video format.
type Dialect struct{}

var spec = format.Spec{
	Format:     catalogkv.Videos,
	Policy:     policy,
	Content:    []string{"prompt"},
	ReadFunc:   read,
	EditFunc:   edit,
	EncodeFunc: encodeForm,
}

func (Dialect) Format() catalogkv.Format { return spec.Format }

func (Dialect) Policy() *format.Policy { return spec.Policy }

// Read reads a request body that is JSON; see ReadForm for forms.
func (Dialect) Read(obj *jsonspan.Object) (*format.Request, *apierr.Error) { return spec.Read(obj) }

// read reads the parameters on which the price depends.
func read(r *format.Request) {
	r.Size = r.Label("size")
	raw := r.Value("seconds")
	if raw == nil {
		return
	}
	seconds, ok := parseSeconds(raw)
	if !ok || seconds < 1 {
		r.Refuse(format.Invalid("seconds", "a whole number of seconds"))
		return
	}
	r.Seconds = seconds
}

// parseSeconds reads a length, which is a string or a number.
func parseSeconds(raw []byte) (seconds int64, ok bool) {
	if seconds, ok = jsonspan.Int64(raw); ok {
		return seconds, seconds <= math.MaxInt32
	}
	text, ok := jsonspan.Text(nil, raw)
	if !ok {
		return 0, false
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
	return seconds, err == nil
}

// edit sends the length as a string, as the format requires. A request without one gets the length that its price was
// computed for: the provider's own default may be another.
func edit(r *format.Request, e *format.Edit, t *format.Target) {
	if t.Policy.Row("seconds").Action == format.Forward {
		e.Set("seconds", e.Quote(strconv.FormatInt(cmp.Or(r.Seconds, t.DefaultSeconds, DefaultSeconds), 10)))
	}
}
