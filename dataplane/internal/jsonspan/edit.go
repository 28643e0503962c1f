package jsonspan

import (
	"slices"
	"unicode/utf8"
)

// Edit is a list of changes to the top-level members of a parsed body, from which
// the outgoing body is assembled. Every byte that no change concerns is kept as
// received, white space included. The zero value is ready for Begin; reusing an
// Edit reuses its memory. For a nested object, Parse its value and edit that.
type Edit struct {
	object  *Object
	changes []change // by member; empty until the first change
	added   []addition
	quoted  []byte // the added names, each with a comma before and a colon after it
	grows   int    // upper bound of what the changes add to the length
}

// addition is a member that the body does not have.
type addition struct {
	name   string
	quoted Span // in Edit.quoted
	value  []byte
}

// change is what happens to one member.
type change struct {
	drop  bool
	value []byte // new value, nil to keep the old one
}

// Begin empties the list and makes it one for o, which must stay as it is until
// the body is assembled. Begin(nil) lets go of the body and the values, for an Edit
// that is kept for another request.
func (e *Edit) Begin(o *Object) {
	clear(e.changes)
	clear(e.added)
	*e = Edit{object: o, changes: e.changes[:0], added: e.added[:0], quoted: e.quoted[:0]}
}

// Changed tells whether there is any change.
func (e *Edit) Changed() bool { return len(e.changes) > 0 || len(e.added) > 0 }

// DropAt leaves out the i-th of the object's members.
func (e *Edit) DropAt(i int) { *e.at(i) = change{drop: true} }

// ReplaceAt writes raw, a JSON value, as the value of the i-th of the object's
// members. raw must stay as it is until the body is assembled.
func (e *Edit) ReplaceAt(i int, raw []byte) {
	*e.at(i) = change{value: raw}
	e.grows += len(raw)
}

// Drop leaves out the named member and tells whether there was one.
func (e *Edit) Drop(name string) bool {
	i := e.object.Index(name)
	if i >= 0 {
		e.DropAt(i)
	}
	return i >= 0
}

// Set gives the named member the value raw, a JSON value: it replaces the one
// there is, or else adds the member at the end. raw must stay as it is until the
// body is assembled.
func (e *Edit) Set(name string, raw []byte) {
	if i := e.object.Index(name); i >= 0 {
		e.ReplaceAt(i, raw)
		return
	}
	e.grows += len(raw)
	for i := range e.added {
		if e.added[i].name == name {
			e.added[i].value = raw
			return
		}
	}
	start := len(e.quoted)
	e.quoted = append(e.quoted, ',')
	e.quoted = AppendString(e.quoted, name)
	e.quoted = append(e.quoted, ':')
	e.added = append(e.added, addition{name: name, quoted: Span{start, len(e.quoted)}, value: raw})
}

// at returns the change of the i-th member.
func (e *Edit) at(i int) *change {
	if len(e.changes) == 0 {
		e.changes = slices.Grow(e.changes, len(e.object.members))[:len(e.object.members)]
	}
	return &e.changes[i]
}

// Append appends the changed body to dst and returns the extended slice. Without
// changes it copies nothing and returns the body itself, whatever dst is.
func (e *Edit) Append(dst []byte) []byte {
	if !e.Changed() {
		return e.object.body
	}
	dst = slices.Grow(dst, len(e.object.body)+len(e.quoted)+e.grows)
	e.segments(func(part []byte) { dst = append(dst, part...) })
	return dst
}

// Segments appends the parts of the changed body to dst, for a caller that would
// rather write a large body in pieces than copy it. They alias the body, the new
// values and the Edit.
func (e *Edit) Segments(dst [][]byte) [][]byte {
	e.segments(func(part []byte) {
		if len(part) > 0 {
			dst = append(dst, part)
		}
	})
	return dst
}

// segments emits the parts of the changed body in order.
func (e *Edit) segments(emit func([]byte)) {
	body, members := e.object.body, e.object.members
	from := 0 // what lies before is emitted or left out
	kept := 0
	for i := range e.changes {
		m, c := &members[i], &e.changes[i]
		switch {
		case c.drop:
			cut := dropped(members, i, kept > 0)
			emit(body[from:cut.Start])
			from = cut.End
			continue
		case c.value != nil:
			emit(body[from:m.Value.Start])
			emit(c.value)
			from = m.Value.End
		}
		kept++
	}
	if len(e.changes) == 0 {
		kept = len(members)
	}
	if len(e.added) > 0 {
		end := e.object.open + 1
		if len(members) > 0 {
			end = members[len(members)-1].Value.End
		}
		emit(body[from:end])
		from = end
	}
	for _, a := range e.added {
		name := a.quoted
		if kept == 0 {
			name.Start++ // no comma before the first
		}
		emit(name.Of(e.quoted))
		emit(a.value)
		kept++
	}
	emit(body[from:])
}

// dropped returns what goes when the i-th member does: after a member that stays,
// the comma before it, otherwise the comma after it. The white space goes with the
// comma.
func dropped(members []Member, i int, after bool) Span {
	m := members[i]
	switch {
	case after:
		return Span{members[i-1].Value.End, m.Value.End}
	case i+1 < len(members):
		return Span{m.Key.Start, members[i+1].Key.Start}
	}
	return Span{m.Key.Start, m.Value.End}
}

// AppendString appends text to dst as a JSON string. Bytes that are not UTF-8
// become U+FFFD.
func AppendString(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	plain := plainPrefix(text) // mostly all of it: one copy
	dst = append(append(dst, '"'), text[:plain]...)
	for _, r := range text[plain:] {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// plainPrefix is how many bytes of text stand for themselves in a JSON string.
func plainPrefix(text string) int {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return len(text)
}
