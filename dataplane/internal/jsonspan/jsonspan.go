// Package jsonspan finds the members of a JSON object without decoding it.
//
// It owns the one pass that every request body takes: [Object.Parse] checks that
// the whole text is valid JSON and notes where each top-level member lies, so that
// the gateway can read the few members it must, measure the rest, and splice an
// outgoing body with [Edit] in which every other byte is the byte that was
// received. [Find], [Members] and [Elements] walk nested values the same way.
//
// It does not own what the members mean, defaults, limits on the size of a body,
// or the wording of the error that a client sees.
//
// Invariants:
//
//   - What Parse accepts is one JSON object of RFC 8259 in valid UTF-8, with only
//     white space around it. It is stricter than encoding/json: the same name twice
//     in one object, at any depth and however it is spelt, is refused, because a
//     gateway that reads the first and a provider that reads the last would bill one
//     request and run another. Lone surrogate escapes are accepted, and read as
//     U+FFFD, as encoding/json does; two names that differ only in such escapes are
//     therefore the same name.
//   - Nothing is copied: names and values alias the body, which must not change
//     while they are in use. Only names written with escapes are decoded aside.
//   - A reused Object takes no memory from the heap for an ordinary body, and what
//     it may take for a hostile one is bounded by [MaxOpenMembers].
package jsonspan

import "fmt"

const (
	// MaxDepth is how deep objects and arrays may nest; the top-level object
	// counts as one.
	MaxDepth = 512

	// MaxOpenMembers is how many members the objects that enclose one point of
	// the text may have before it, together. Finding duplicates needs a note of
	// each, and so does the list of top-level members: without a limit, a body of
	// tiny members would cost many times its size in memory. A table that names
	// every token of a large vocabulary stays below it.
	MaxOpenMembers = 1 << 18
)

// Kind is the type of a JSON value. The zero Kind, KindInvalid, is no value.
type Kind uint8

// The kinds of JSON values.
const (
	KindInvalid Kind = iota
	KindNull
	KindFalse
	KindTrue
	KindNumber
	KindString
	KindArray
	KindObject
)

// Span is a range of bytes in a body, from Start up to but not including End.
type Span struct{ Start, End int }

// Of returns the bytes of the span in body, which must be the body it was found in.
func (s Span) Of(body []byte) []byte { return body[s.Start:s.End:s.End] }

// SyntaxError says that a text is not a JSON object, or is one beyond the limits
// of this package. Its message never contains bytes of the text.
type SyntaxError struct {
	// Offset is the index of the first byte that cannot be accepted, or the
	// length of the text if it ends too early.
	Offset int
	// Msg says what is wrong there.
	Msg string
}

// Error returns the message with its offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Msg, e.Offset)
}

// DuplicateError says that an object has two members of the same name.
type DuplicateError struct {
	// Path leads to the member, in the manner of messages[3].role. It is made of
	// the client's own names, so it may be answered but not logged; long names
	// and long paths are shortened.
	Path string
	// Offset is the index of the second member's name in the text.
	Offset int
}

// Error returns a message without the path, so that it can be logged.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("duplicate member at byte %d", e.Offset)
}
