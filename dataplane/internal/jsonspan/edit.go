package jsonspan

import (
	"slices"
	"unicode/utf8"
)

// Edit is a list of changes to the top-level members of a parsed body, from which the outgoing body is assembled.
// Every other byte stays as received, including white space. The zero value is ready for Begin; reusing an Edit
// reuses its memory. To edit a nested object, Parse its value.
type Edit struct {
	object  *Object
	changes []change // by member; empty until the first change
	added   []addition
	quoted  []byte // the added names, each with a comma before and a colon after it
	growth  int    // upper bound of the length that the changes add
	// apart is the length in bytes from which on unchanged parts of the body are left out of the assembled text, zero for
	// none; cuts are those parts.
	apart int
	cuts  []cut
}

// cut is a part of the body that belongs at an index of the assembled text.
type cut struct {
	at   int
	span Span
}

// addition is a member that the body does not have.
type addition struct {
	name   string
	quoted Span // in Edit.quoted
	value  []byte
}

// change is the change of one member.
type change struct {
	drop  bool
	value []byte // new value, nil to keep the old one
}

// Begin starts an empty list for o, which must not change until the body is assembled. Begin(nil) drops the
// references to the body and the values, for an Edit that is kept for another request.
func (e *Edit) Begin(o *Object) {
	clear(e.changes)
	clear(e.added)
	*e = Edit{
		object:  o,
		changes: e.changes[:0],
		added:   e.added[:0],
		quoted:  e.quoted[:0],
		cuts:    e.cuts[:0],
	}
}

// Changed reports whether the list has any change.
func (e *Edit) Changed() bool { return len(e.changes) > 0 || len(e.added) > 0 }

// DropAt removes the i-th member of the object.
func (e *Edit) DropAt(i int) { *e.at(i) = change{drop: true} }

// ReplaceAt sets the value of the i-th member of the object to raw, a JSON value. raw must not change until the body
// is assembled.
func (e *Edit) ReplaceAt(i int, raw []byte) {
	*e.at(i) = change{value: raw}
	e.growth += len(raw)
}

// Drop removes the named member if it exists or was added.
func (e *Edit) Drop(name string) bool {
	if added := slices.IndexFunc(e.added, func(a addition) bool { return a.name == name }); added >= 0 {
		e.added = slices.Delete(e.added, added, added+1)
		return true
	}
	i := e.object.Index(name)
	if i >= 0 {
		e.DropAt(i)
	}
	return i >= 0
}

// Set sets the value of the named member to raw, a JSON value. A member that does not exist is added at the end. raw
// must not change until the body is assembled.
func (e *Edit) Set(name string, raw []byte) {
	if i := e.object.Index(name); i >= 0 {
		e.ReplaceAt(i, raw)
		return
	}

	e.growth += len(raw)
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

// Append appends the changed body to dst and returns the extended slice. Without changes it returns the body itself
// and ignores dst.
func (e *Edit) Append(dst []byte) []byte {
	if !e.Changed() {
		return e.object.body
	}
	dst = slices.Grow(dst, len(e.object.body)+len(e.quoted)+e.growth)
	return e.assemble(dst)
}

// Splice is Append without a copy of the unchanged parts of the body that have least bytes or more: the changed body
// consists of parts, each of which is a part of the body or of edits, the extended dst.
func (e *Edit) Splice(dst []byte, least int) (edits []byte, parts [][]byte) {
	if !e.Changed() {
		return dst, [][]byte{e.object.body}
	}

	e.apart, e.cuts = max(least, 1), e.cuts[:0]
	start := len(dst)
	dst = e.assemble(dst)
	e.apart = 0
	parts = make([][]byte, 0, 2*len(e.cuts)+1)
	for _, c := range e.cuts {
		if c.at > start {
			parts = append(parts, dst[start:c.at:c.at])
		}
		parts = append(parts, c.span.Of(e.object.body))
		start = c.at
	}

	if len(dst) > start {
		parts = append(parts, dst[start:])
	}

	return dst, parts
}

// keep appends an unchanged part of the body, or notes it.
func (e *Edit) keep(dst []byte, from, to int) []byte {
	if e.apart > 0 && to-from >= e.apart {
		e.cuts = append(e.cuts, cut{len(dst), Span{from, to}})
		return dst
	}
	return append(dst, e.object.body[from:to]...)
}

func (e *Edit) assemble(dst []byte) []byte {
	body, members := e.object.body, e.object.members
	from := 0 // the body before this index is kept or left out
	kept := 0
	for i := range e.changes {
		m, c := &members[i], &e.changes[i]
		switch {
		case c.drop:
			dropped := droppedSpan(members, i, kept > 0)
			dst = e.keep(dst, from, dropped.Start)
			from = dropped.End
			continue
		case c.value != nil:
			dst = e.keep(dst, from, m.Value.Start)
			dst = append(dst, c.value...)
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
		dst = e.keep(dst, from, end)
		from = end
	}

	for _, a := range e.added {
		name := a.quoted
		if kept == 0 {
			name.Start++ // no comma before the first
		}
		dst = append(append(dst, name.Of(e.quoted)...), a.value...)
		kept++
	}

	return e.keep(dst, from, len(body))
}

// droppedSpan returns the bytes that are removed with the i-th member: after a member that stays, with the comma
// before it; otherwise with the comma after it. White space is removed with the comma.
func droppedSpan(members []Member, i int, after bool) Span {
	m := members[i]
	switch {
	case after:
		return Span{members[i-1].Value.End, m.Value.End}
	case i+1 < len(members):
		return Span{m.Key.Start, members[i+1].Key.Start}
	}
	return Span{m.Key.Start, m.Value.End}
}

// AppendString appends text to dst as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	plain := plainPrefix(text) // usually the whole text, in one copy
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

// plainPrefix returns the length of the prefix of text that needs no escaping in a JSON string.
func plainPrefix(text string) int {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return len(text)
}
