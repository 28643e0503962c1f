package format

import (
	"strconv"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/catalogkv"
)

// Target describes the route that an outgoing body is for.
type Target struct {
	// Model is the provider's name of the model.
	Model string
	// Policy is the policy that the request was checked with.
	Policy *Policy
	// Rules are the rules that the request was checked with.
	Rules Rules
	// MaxOutput is the model's output limit in tokens, zero if it is unknown. A higher limit of the request is lowered
	// to it: some providers refuse such a limit instead of ignoring it.
	MaxOutput int64
	// IdentityFunc returns the replacement of a client's identifier: a hash keyed by the account, at most 64
	// characters. Nil drops identifiers.
	IdentityFunc func(value string) string
	// PseudonymFunc returns the pseudonym of the account. It is sent if WantsUser is set, because the provider
	// requires a user, and the client sent none.
	PseudonymFunc func() string
	WantsUser     bool
	// DefaultSeconds is the model's length of a video for a request without one, zero if it has none.
	DefaultSeconds int64
	// Kind is the kind of the provider, which decides about the members of Departures.
	Kind catalogkv.ProviderKind
	// Betas names further beta features that the provider is to be asked for, separated by commas. They are sent if the
	// provider wants them in the body.
	Betas string
	// Without are members that the gateway adds and leaves out for this route, because its provider refuses them.
	Without Added
}

// Edit is the list of changes from the received to the outgoing body. The zero value is ready.
type Edit struct {
	jsonspan.Edit
	scratch []byte // new values
	// added are the members that were added.
	added Added
}

// maxPooledScratch bounds the memory that a released Edit keeps, in bytes.
const maxPooledScratch = 4 << 10

// release removes the references to the body.
func (e *Edit) release() {
	e.Begin(nil)
	if e.scratch = e.scratch[:0]; cap(e.scratch) > maxPooledScratch {
		e.scratch = nil
	}
}

// Quote returns text as a JSON string that stays valid as long as the changes of the Edit.
func (e *Edit) Quote(text string) []byte {
	start := len(e.scratch)
	e.scratch = jsonspan.AppendString(e.scratch, text)
	return e.scratch[start:len(e.scratch):len(e.scratch)]
}

// Number returns n as JSON, valid as long as the changes of the Edit.
func (e *Edit) Number(n int64) []byte {
	start := len(e.scratch)
	e.scratch = strconv.AppendInt(e.scratch, n, 10)
	return e.scratch[start:len(e.scratch):len(e.scratch)]
}

// Concat returns the parts joined, valid as long as the changes of the Edit.
func (e *Edit) Concat(parts ...[]byte) []byte {
	start := len(e.scratch)
	for _, part := range parts {
		e.scratch = append(e.scratch, part...)
	}
	return e.scratch[start:len(e.scratch):len(e.scratch)]
}

// AppendUpstream appends the outgoing body to dst: the received body with the provider's name of the model and the
// changes of the policy. A null member is left out, because it counts as absent. Without changes it returns the
// received body itself. It may be called again for another route.
func (r *Request) AppendUpstream(dst []byte, t Target) []byte {
	r.listEdits(&t)
	if r.File != nil {
		return r.encode(dst)
	}
	return r.edit.Append(dst)
}

// Added returns the members that the gateway has added to the last outgoing body. The request can be repeated with them in
// Target.Without. It may be called when the received body is gone.
func (r *Request) Added() Added { return r.edit.added }

// SpliceUpstream is AppendUpstream for a large body: it does not copy the long parts that stay as received. The outgoing
// body consists of parts, each of which is a part of the received body or of edits, the extended dst.
func (r *Request) SpliceUpstream(dst []byte, t Target) (edits []byte, parts [][]byte) {
	r.listEdits(&t)
	if r.File != nil {
		body := r.encode(dst)
		return body, [][]byte{body[len(dst):]}
	}
	return r.edit.Splice(dst, minPart)
}

// minPart is the length in bytes from which on an unchanged part of a body is not copied.
const minPart = 16 << 10

// encode appends the outgoing body with the file.
func (r *Request) encode(dst []byte) (body []byte) {
	body, r.contentType = r.spec.EncodeFunc(dst, r.edit.Append(nil), r.File)
	return body
}

// listEdits fills in the changes of the received body.
func (r *Request) listEdits(t *Target) {
	e := &r.edit
	e.Begin(r.obj)
	e.scratch, e.added = e.scratch[:0], 0
	members := r.obj.Members()
	for i := range members {
		m := &members[i]
		switch {
		case m.Kind == jsonspan.KindNull:
			e.DropAt(i)
		case string(m.Name) == "model":
			e.ReplaceAt(i, e.Quote(t.Model))
		case t.asksForTier(m, r.obj.Body()):
		default:
			e.apply(i, t.Policy.params[string(m.Name)], m.Value.Of(r.obj.Body()), t)
		}
	}

	if t.MaxOutput > 0 && r.MaxOutput > t.MaxOutput {
		r.lowerLimits(e, t)
	}

	for _, row := range t.Policy.forced {
		if len(row.tiersFor(r.Value(row.Name), t.Rules.Sheet)) > 0 {
			continue // the client's own member: without it, the answer would be one that it has not asked for
		}
		if e.Adds(row.added, t) {
			e.Set(row.Name, row.raw)
		} else {
			e.Drop(row.Name)
		}
	}

	if name := r.spec.UserParam; name != "" && t.wantsPseudonym(name) && r.Value("user") == nil && r.Value("safety_identifier") == nil {
		e.Set(name, e.Quote(t.PseudonymFunc()))
	}
	if r.spec.EditFunc != nil {
		r.spec.EditFunc(r, e, t)
	}

	var filter *toolFilter
	if r.leavesOut {
		filter = r.leaveOutTools(e, t)
	}

	r.editInclude(e, t, filter)
	r.depart(e, t)
}

// asksForTier reports whether a member asks for a service tier with prices. It is sent as it is.
func (t *Target) asksForTier(m *jsonspan.Member, body []byte) bool {
	if t.Rules.Sheet == nil || len(t.Rules.Sheet.ServiceTiers) == 0 || len(t.Policy.tiered) == 0 {
		return false // most models have none, and this is asked for every member
	}
	row := t.Policy.params[string(m.Name)]
	return row != nil && len(row.tiersFor(m.Value.Of(body), t.Rules.Sheet)) > 0
}

// lowerLimits replaces the output limits of the request, which are above that of the model.
func (r *Request) lowerLimits(e *Edit, t *Target) {
	for _, name := range r.spec.Limits {
		row := t.Policy.params[name]
		if row != nil && (row.Action == Clamp || row.Action == Forward) && r.Value(name) != nil {
			e.Set(name, e.Number(row.Clamped(t.MaxOutput)))
		}
	}
}

// apply makes the change of one row.
func (e *Edit) apply(i int, row *Param, raw []byte, t *Target) {
	if row == nil { // the request was checked with another policy
		e.DropAt(i)
		return
	}
	switch row.Action {
	case Reject, Drop:
		e.DropAt(i)
	case Clamp:
		if n, ok := integer(raw); ok && n != row.Clamped(n) {
			e.ReplaceAt(i, e.Number(row.Clamped(n)))
		}
	case Replace:
		if row.raw != nil {
			e.ReplaceAt(i, row.raw)
		} else if text, ok := jsonspan.Text(nil, raw); ok && t.IdentityFunc != nil {
			e.ReplaceAt(i, e.Quote(t.IdentityFunc(string(text))))
		} else {
			e.DropAt(i)
		}
	case Forward, Force:
	}
}

// wantsPseudonym reports whether the account's pseudonym is sent in the named member.
func (t *Target) wantsPseudonym(name string) bool {
	row := t.Policy.params[name]
	return t.WantsUser && t.PseudonymFunc != nil && row != nil && (row.Action == Replace || row.Action == Forward)
}

// Clamped returns n moved into the bounds of the row.
func (row *Param) Clamped(n int64) int64 {
	if row.Max > 0 {
		n = min(n, row.Max)
	}
	return max(n, row.Min)
}
