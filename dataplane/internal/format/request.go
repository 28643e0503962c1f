package format

import (
	"slices"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

// Request is the parsed body of a request. It refers to the JSON object, which must not change until Release.
type Request struct {
	// Model is the model name in the client's request.
	Model string
	// Stream reports whether the client wants an event stream.
	Stream bool
	// IncludeUsage reports whether the client of a chat stream wants its usage.
	IncludeUsage bool
	// N is how many choices a chat request wants, at least 1.
	N int64
	// MaxOutput is the client's output limit in tokens, for each of N choices; zero if it set none.
	MaxOutput int64
	// Images is how many images an image request wants, 1 to 10.
	Images int64
	// Frames is how many frames each image has, zero or one if it is no animation.
	Frames int64
	// Size and Quality are those of images or of a video, on which prices depend; empty if the client left the choice
	// to the provider.
	Size, Quality string
	// Seconds is the length of a video; zero if the client set none.
	Seconds int64
	// Betas is the set of beta features that the request needs, in the order of the format's list of them.
	Betas uint64
	// File is the file in a form, nil if there is none.
	File *File

	spec     *Spec
	obj      *jsonspan.Object
	refusal  *apierr.Error // the first refusal that Read found
	hasLimit bool
	edit     Edit
	// leavesOut reports whether Check has found tools that some policy leaves out, leftOut whether its last call has.
	leavesOut, leftOut bool
	ownsBody           bool // obj is the Request's own
	// contentType is that of the last body that AppendUpstream returned.
	contentType string
}

// File is a file in a form.
type File struct {
	// Field is the name of the form field, Name that of the file.
	Field, Name string
	// Type is the media type that the client set, empty if none.
	Type string
	// Data is the content as received.
	Data []byte
}

// Format returns the format of the request.
func (r *Request) Format() catalogkv.Format { return r.spec.Format }

const jsonType = "application/json"

// ContentType returns the media type of the last body that AppendUpstream returned.
func (r *Request) ContentType() string { return r.contentType }

// Beta returns the names of the beta features that the request needs under a policy, separated by commas. They are sent
// in a header of their own. Check must have accepted the request.
func (r *Request) Beta(p *Policy) string {
	if r.Betas == 0 || r.spec.BetaFunc == nil {
		return ""
	}
	return r.spec.BetaFunc(r, p)
}

// Body returns the JSON object of the request.
func (r *Request) Body() *jsonspan.Object { return r.obj }

// Value returns a member as written, nil if it is absent or null.
func (r *Request) Value(name string) []byte {
	m, ok := r.obj.Get(name)
	if !ok || m.Kind == jsonspan.KindNull {
		return nil
	}
	return m.Value.Of(r.obj.Body())
}

// Text returns the text of a member, empty if it is absent or no string.
func (r *Request) Text(name string) string {
	text, _ := jsonspan.Text(nil, r.Value(name))
	return string(text)
}

// Label returns the Label of a member.
func (r *Request) Label(name string) string {
	text, _ := jsonspan.Text(nil, r.Value(name))
	return Label(text)
}

// Integer returns the value of an integral member. A value beyond int64 is replaced by the nearest int64. ok is false
// for any other value, and for none.
func (r *Request) Integer(name string) (value int64, ok bool) { return integer(r.Value(name)) }

// LeavesOut reports whether the policy of the last Check leaves out tools of the request.
func (r *Request) LeavesOut() bool { return r.leftOut }

// Refuse sets the refusal that Check will return, unless one is set.
func (r *Request) Refuse(e *apierr.Error) {
	if r.refusal == nil {
		r.refusal = e
	}
}

// Release returns the Request for reuse. Neither it nor an uncopied result of AppendUpstream may be used afterwards.
// The caller keeps the parsed body unless the Request owns it.
func (r *Request) Release() {
	if r.ownsBody {
		r.obj.Release()
	}
	r.edit.release()
	*r = Request{edit: r.edit}
	requests.Put(r)
}

// OwnBody makes Release release the parsed body, too.
func (r *Request) OwnBody() { r.ownsBody = true }

// EstimateInput estimates the tokens of the prompt from the length of the members that carry it: a quarter of the bytes
// of its text, rounded up, and three quarters of those that have no words, because base64 has three tokens for four
// letters. Media count as perImage tokens each and, unless they are images, as a sixteenth of their bytes in addition:
// documents and audio are compressed, and base64 makes them longer. Plain text in base64 is not compressed: three sixteenths.
func (r *Request) EstimateInput(perImage int64) int64 {
	size := r.promptSize()
	return EstimateTokens(int64(size.Bytes-size.MediaBytes+2*size.DenseBytes)) + int64(size.MediaParts)*perImage +
		int64(size.FileBytes/16+size.PlainBytes/8)
}

// TextLength returns how many bytes of text a model has to read at least: those of the prompt without media and tools. Some
// providers leave tools out that nothing calls.
func (r *Request) TextLength() int64 {
	size := r.promptSize()
	n := size.Bytes - size.MediaBytes
	if m, ok := r.obj.Get("tools"); ok && m.Kind != jsonspan.KindNull && slices.Contains(r.spec.Content, "tools") {
		n -= m.Size.Bytes - m.Size.MediaBytes
	}
	return int64(n)
}

// fileAddressTokens are reserved for a document, audio or video of which a prompt has only the address: about fifty pages
// of which the provider reads the text and a picture, or an hour of sound.
const fileAddressTokens = 100_000

// MaxFileTokens returns how many tokens more than EstimateInput says the documents of a prompt may have: those of plain
// text, or for an address fileAddressTokens. A reservation must cover them. addressed is the part of those of which only the
// address is known, so nothing else says how long they are.
func (r *Request) MaxFileTokens() (tokens, addressed int64) {
	size := r.promptSize()
	addressed = int64(size.FileAddresses) * fileAddressTokens
	return EstimateTokens(int64(size.FileBytes)) - int64(size.FileBytes/16+size.PlainBytes/8) + addressed, addressed
}

// promptSize returns the size of the members that carry the prompt.
func (r *Request) promptSize() (sum jsonspan.Size) {
	for _, name := range r.spec.Content {
		m, ok := r.obj.Get(name)
		if !ok || m.Kind == jsonspan.KindNull {
			continue
		}
		sum.Bytes += m.Size.Bytes
		sum.MediaBytes += m.Size.MediaBytes
		sum.MediaParts += m.Size.MediaParts
		sum.FileBytes += m.Size.FileBytes
		sum.PlainBytes += m.Size.PlainBytes
		sum.DenseBytes += m.Size.DenseBytes
		sum.FileAddresses += m.Size.FileAddresses
	}
	return sum
}
