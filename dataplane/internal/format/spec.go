package format

import (
	"net/http"
	"sync"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
)

// Spec describes the requests of one format. It is immutable.
type Spec struct {
	Format catalogkv.Format
	Policy *Policy
	// Content names the members that carry the prompt, for the estimate of its tokens.
	Content []string
	// Limits names the members that limit the output.
	Limits []string
	// UserParam is the member for the account's pseudonym; empty if the format has none, or none that is a plain
	// string.
	UserParam string
	// Includes is the entry of the member include that makes an answer complete where nothing is stored; empty if the
	// format has none.
	Includes string
	// Tools describes the tools of the format; nil if it has none.
	Tools *Tools
	// ReadFunc, CheckFunc and EditFunc implement the steps that only this format needs; each may be nil. EditFunc runs
	// after all general changes.
	ReadFunc  func(r *Request)
	CheckFunc func(r *Request, p *Policy, rules Rules) *apierr.Error
	EditFunc  func(r *Request, e *Edit, t *Target)
	// BetaFunc returns the names of the beta features that a checked request needs at a provider; nil if the format has
	// none.
	BetaFunc func(r *Request, p *Policy) string
	// EncodeFunc makes an outgoing body and its content type from an object and the file that belongs to it. Only a
	// format with files has one.
	EncodeFunc func(dst, object []byte, file *File) (body []byte, contentType string)
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// Read implements Dialect.Read for the format.
func (s *Spec) Read(obj *jsonspan.Object) (*Request, *apierr.Error) {
	model, ok := obj.Get("model")
	if !ok || model.Kind == jsonspan.KindNull {
		return nil, Missing("model")
	}

	name, ok := jsonspan.Text(nil, model.Value.Of(obj.Body()))
	if !ok || len(name) == 0 {
		e := Missing("model")
		e.Status, e.Message = http.StatusBadRequest, "The parameter \"model\" must be the name of a model."
		return nil, e
	}

	r := requests.Get().(*Request)
	r.spec, r.obj, r.Model, r.N, r.contentType = s, obj, string(name), 1, jsonType
	r.readStream()

	for _, name := range s.Limits {
		r.readLimit(name)
	}

	if s.ReadFunc != nil {
		s.ReadFunc(r)
	}

	return r, nil
}

// readStream reads the member that asks for a stream.
func (r *Request) readStream() {
	raw := r.Value("stream")
	if raw == nil {
		return
	}
	stream, ok := jsonspan.Bool(raw)
	if !ok {
		r.Refuse(Invalid("stream", "a boolean"))
	}
	r.Stream = stream
}

// readLimit reads an output limit. If two are set they must not differ: providers do not agree on which one counts.
func (r *Request) readLimit(name string) {
	raw := r.Value(name)
	if raw == nil {
		return
	}
	limit, ok := integer(raw)
	switch {
	case !ok || limit < 0:
		r.Refuse(Invalid(name, "an integer that is not negative"))
	case r.hasLimit && limit != r.MaxOutput:
		r.Refuse(Invalid(name, "equal to the other output limit"))
	default:
		r.MaxOutput, r.hasLimit = limit, true
	}
}
