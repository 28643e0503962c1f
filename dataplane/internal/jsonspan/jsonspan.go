// Package jsonspan reads and edits JSON texts without decoding them.
//
// It has two ways of reading. [Object.Parse] validates a whole request body in one pass and records the position of
// each top-level member, so that the gateway can read the few members it needs, measure the rest, and assemble an
// outgoing body with [Edit] that changes only those bytes that have to change. [ObjectCursor], [ArrayCursor],
// [Members], [Elements] and [Find] walk values without validating them first: nested values of a parsed body, and the
// answers and events of providers, which [Splicer] copies with a few values changed.
//
// It does not define the meaning of members, defaults, limits on the size of a body, or the text of the error that a
// client gets.
//
// Invariants:
//
//   - Parse accepts one JSON object of RFC 8259 in valid UTF-8, with only white space
//     around it. It is stricter than encoding/json: it rejects an object that has the
//     same name twice, at any depth and however the name is spelt. A gateway that read
//     the first of them and a provider that read the last would charge for one request
//     and run another. Lone surrogate escapes are accepted and decoded as U+FFFD, as
//     encoding/json does; names that differ only in such escapes count as the same.
//   - Nothing is copied: names and values alias the body, which must not change while
//     they are in use. Only names written with escapes are decoded into other memory.
//   - A reused Object allocates nothing for an ordinary body, and [MaxOpenMembers]
//     bounds the allocations for a hostile body.
//   - No text makes these functions and cursors panic or loop.
package jsonspan

import "fmt"

const (
	// MaxDepth is how deep objects and arrays may nest; the top-level object counts as one.
	MaxDepth = 512

	// MaxOpenMembers is the greatest number of members that all objects enclosing one position of the text may have
	// before that position, in total. The detection of duplicates stores an entry for each of them, as does the list of
	// top-level members: without a limit, a body of tiny members would need many times its size in memory. A logit_bias
	// object with every token of a large vocabulary is below the limit.
	MaxOpenMembers = 1 << 18
)

// Kind is the type of a JSON value. The zero Kind is KindInvalid.
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

// SyntaxError is the error for a text that is not a JSON object or exceeds the limits of this package. Its message
// contains no bytes of the text.
type SyntaxError struct {
	// Offset is the index of the first byte that is not accepted, or the length of the text if it ends too early.
	Offset int
	// Msg describes the error.
	Msg string
}

// Error returns the message with its offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Msg, e.Offset)
}

// DuplicateError is the error for an object with two members of the same name.
type DuplicateError struct {
	// Path is the path of the member, as in messages[3].role. It consists of the client's own names, so it may be
	// sent to the client but not logged. Long names and long paths are shortened.
	Path string
	// Offset is the index of the second member's name in the text.
	Offset int
}

// Error returns a message without the path, which can be logged.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("duplicate member at byte %d", e.Offset)
}
