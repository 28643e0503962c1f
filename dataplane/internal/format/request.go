package format

import (
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

// Request is what the gateway knows of a request body. It refers to the parsed body,
// which must stay as it is until Release.
type Request struct {
	// Model is the name that the client asked for.
	Model string
	// Stream tells that the answer is to be an event stream.
	Stream bool
	// IncludeUsage tells that the client of a chat stream asked for its usage.
	IncludeUsage bool
	// N is how many answers a chat request wants, at least 1.
	N int64
	// MaxOutput is the bound of the output that the client set, in tokens, for each
	// of N answers; zero if it set none.
	MaxOutput int64
	// Images is how many pictures an image request makes, 1 to 10.
	Images int64
	// Size and Quality are those of pictures or of a video, which prices depend on;
	// empty if the client left the choice to the provider.
	Size, Quality string
	// Seconds is the length of a video; zero if the client named none.
	Seconds int64
	// File is the part of a form that is a file, nil if there is none.
	File *File

	spec     *Spec
	obj      *jsonspan.Object
	refusal  *apierr.Error // the first that Read met
	hasLimit bool
	edit     Edit
	ownsBody bool // obj is the Request's own
	// contentType is that of the body made last.
	contentType string
}

// File is a file in a form.
type File struct {
	// Field is the name of the form's field, Name that of the file.
	Field, Name string
	// Type is the media type that the client stated, empty if none.
	Type string
	// Data is the content, as received.
	Data []byte
}

// Format returns the format of the request.
func (r *Request) Format() catalogkv.Format { return r.spec.Format }

const jsonType = "application/json"

// ContentType returns the media type of what AppendUpstream returned last.
func (r *Request) ContentType() string { return r.contentType }

// Body returns the object that the request was read from.
func (r *Request) Body() *jsonspan.Object { return r.obj }

// Value returns a member as written; nil if it is absent or null, which is the same.
func (r *Request) Value(name string) []byte {
	m, ok := r.obj.Get(name)
	if !ok || m.Kind == jsonspan.KindNull {
		return nil
	}
	return m.Value.Of(r.obj.Body())
}

// Text returns the text of a member; empty if it is absent or no string.
func (r *Request) Text(name string) string {
	text, _ := jsonspan.Text(nil, r.Value(name))
	return string(text)
}

// Label returns the Label of the named member.
func (r *Request) Label(name string) string {
	text, _ := jsonspan.Text(nil, r.Value(name))
	return Label(text)
}

// Integer returns a member that is an integer of any size, one that does not fit
// moved to the bound of int64; ok is false for other values and for none.
func (r *Request) Integer(name string) (value int64, ok bool) { return integer(r.Value(name)) }

// Fail notes a fault for Check to report, if it is the first.
func (r *Request) Refuse(e *apierr.Error) {
	if r.refusal == nil {
		r.refusal = e
	}
}

// Release gives the Request back for reuse. Neither it nor what AppendUpstream
// returned without copying may be used afterwards; the parsed body is the caller's.
func (r *Request) Release() {
	if r.ownsBody {
		r.obj.Release()
	}
	r.edit.release()
	*r = Request{edit: r.edit}
	requests.Put(r)
}

// Adopt makes the parsed body one that Release releases as well.
func (r *Request) OwnBody() { r.ownsBody = true }

// EstimateInput estimates the tokens of the prompt from the length of the members
// that carry it: a quarter of their bytes, rounded up. Media written into them are
// not counted by length, but as perImage tokens each.
func (r *Request) EstimateInput(perImage int64) int64 {
	var bytes, media int64
	for _, name := range r.spec.Content {
		m, ok := r.obj.Get(name)
		if !ok || m.Kind == jsonspan.KindNull {
			continue
		}
		bytes += int64(m.Size.Bytes - m.Size.MediaBytes)
		media += int64(m.Size.MediaParts)
	}
	return Tokens(bytes) + media*perImage
}
