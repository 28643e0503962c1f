package jsonspan

import (
	"math"
	"sync"
	"unsafe"
)

// Member is one top-level member of an object.
type Member struct {
	// Name is the decoded name. It aliases the body, or memory of the Object if the name is written with escapes.
	Name []byte
	// Key is the name as written, with its quotes.
	Key Span
	// Value is the value as written.
	Value Span
	// Kind is the type of the value.
	Kind Kind
	// Size is the length of the value and of the media in it.
	Size Size
}

// Object is a parsed body. The zero value is ready for Parse; reusing an Object reuses its memory. It is not safe for
// concurrent use while Parse runs.
type Object struct {
	body    []byte
	open    int // index of the opening brace
	members []Member
	keys    keySet
	sizes   Size  // running totals of the scan; Bytes is unused
	place   place // of what is being scanned
	err     error
}

// maxPooledMembers bounds the memory that a released Object keeps. It is more than ordinary requests need and small
// enough to keep it once for every running request.
const maxPooledMembers = 256

var objects = sync.Pool{New: func() any { return new(Object) }}

// Acquire returns an empty Object from the pool.
func Acquire() *Object { return objects.Get().(*Object) }

// Release puts the Object back into the pool. Neither it nor the names of its members may be used afterwards; slices
// of the body stay valid.
func (o *Object) Release() {
	o.Reset()
	objects.Put(o)
}

// Reset empties the Object, drops its reference to the body, and frees buffers that have grown large for an unusual
// body.
func (o *Object) Reset() {
	clear(o.members)
	if cap(o.members) > maxPooledMembers {
		o.members = nil
	}
	o.keys.trim()
	o.clear(nil)
}

// clear empties the Object and keeps its memory.
func (o *Object) clear(body []byte) {
	o.body, o.open, o.members, o.sizes, o.place, o.err = body, 0, o.members[:0], Size{}, prose, nil
	o.keys.clear()
}

// Parse reads body, which must be one JSON object and nothing after it. The Object keeps a reference to body. The
// error is a *SyntaxError or a *DuplicateError, and leaves the Object empty.
func (o *Object) Parse(body []byte) error {
	o.clear(body)
	if o.parse() {
		return nil
	}
	err := o.err
	o.clear(nil)
	return err
}

func (o *Object) parse() bool {
	if len(o.body) > math.MaxInt32 {
		return o.fail(math.MaxInt32, "text too long") >= 0
	}
	o.open = SkipSpace(o.body, 0)
	if o.open == len(o.body) || o.body[o.open] != '{' {
		return o.fail(o.open, "expected a JSON object") >= 0
	}
	end := o.scanObject(o.open, 1)
	if end < 0 {
		return false
	}
	if end = SkipSpace(o.body, end); end < len(o.body) {
		return o.fail(end, "expected nothing after the JSON object") >= 0
	}
	return true
}

// Held returns the bytes of memory that the Object needs beside the body.
func (o *Object) Held() int {
	return cap(o.members)*int(unsafe.Sizeof(Member{})) + o.keys.held()
}

// Body returns the text that was parsed.
func (o *Object) Body() []byte { return o.body }

// Members returns the top-level members in the order of the text. The slice is valid until the next Parse, Reset or
// Release and must not be modified.
func (o *Object) Members() []Member { return o.members }

// Index returns the index of the named member in Members, or -1.
func (o *Object) Index(name string) int {
	for i := range o.members {
		if string(o.members[i].Name) == name {
			return i
		}
	}
	return -1
}

// Get returns the named member and reports whether it exists.
func (o *Object) Get(name string) (Member, bool) {
	if i := o.Index(name); i >= 0 {
		return o.members[i], true
	}
	return Member{}, false
}

// Value returns the value of the named member as written, nil if the member does not exist.
func (o *Object) Value(name string) []byte {
	if i := o.Index(name); i >= 0 {
		return o.members[i].Value.Of(o.body)
	}
	return nil
}
