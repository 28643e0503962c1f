// Package format owns what the wire formats have in common: how a request is read,
// checked and rewritten for a provider, and how an answer is read for its usage and
// rewritten for the client. One package per format below it (chat, responses,
// messages, images, videos) implements its Dialect; package app lists those that the
// gateway serves, and package conformance tests all of them.
//
// A request goes through Dialect.Read, Request.Check, Request.EstimateInput and
// Request.AppendUpstream; its answer through Dialect.NewAnswer and then either
// Answer.JSON or Answer.Event for each event and Answer.Finish.
//
// It does not own HTTP, connections, prices, reserves, or the meaning of a
// provider's error: an answer that is none is handed out by Answer.Failure, and
// package classify tells what it means.
//
// Invariants:
//
//   - Nothing is decoded that need not be, and nothing is encoded again: whatever no
//     rule concerns leaves as the bytes that came.
//   - What the policy does not name does not pass to a provider.
//   - An event costs no memory, and next to no time if nothing in it must change.
//   - No bytes of a provider make it panic, and an event stream stays one.
package format

import (
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// Dialect is one wire format. Its implementations hold no state.
type Dialect interface {
	// Format names it.
	Format() catalogkv.Format
	// Policy returns the format's own parameter table, to which a model and a
	// route add theirs: see Policy.With.
	Policy() *Policy
	// Read takes out of a parsed body what the gateway must know. It fails only
	// for a body that names no model, with 400 invalid_request: any other fault
	// waits for Request.Check, because a model that is not there is told first.
	// The Request refers to obj until it is released.
	Read(obj *jsonspan.Object) (*Request, *apierr.Error)
	// NewAnswer returns the reader of one provider answer.
	NewAnswer(cfg AnswerConfig) Answer
}

// AnswerConfig says for which request an answer is.
type AnswerConfig struct {
	// Request is what the client sent. It is read during NewAnswer only: it may be
	// released while the answer runs.
	Request *Request
	// ClientModel is the name that answers carry in place of any that the provider
	// gives, which may be neither this one nor that of the route. Empty: the one
	// in Request.
	ClientModel string
	// ID replaces the provider's id in a video object. Empty keeps it.
	ID string
}

// Kind tells what an event was.
type Kind uint8

// The kinds of events.
const (
	// Other is a comment, bookkeeping, or an event that was swallowed.
	Other Kind = iota
	// Content carries output of the model.
	Content
	// Terminal is the proper end of the format's streams. What follows may only be
	// passed on.
	Terminal
	// Failure is an error of the provider. Nothing was appended: the caller has
	// Answer.Failure classified and ends the stream with Dialect.ErrorEvent.
	Failure
)

// String returns the name of the kind.
func (k Kind) String() string {
	switch k {
	case Content:
		return "content"
	case Terminal:
		return "terminal"
	case Failure:
		return "failure"
	case Other:
	}
	return "other"
}

// Answer reads one provider answer and rewrites it for the client. It is used by one
// goroutine, either for one JSON or for one stream, and returned by Release.
type Answer interface {
	// JSON reads a whole answer and returns what the client gets: body itself if
	// nothing has to change, else dst extended. ok is false if the answer is none,
	// although its status may have been 200: an error object, an answer without a
	// picture, text that is not JSON. Then Failure has it.
	JSON(dst, body []byte) (out []byte, ok bool)
	// Event reads one event of a stream and appends what the client gets to dst.
	Event(dst []byte, ev sse.Event) ([]byte, Kind)
	// Finish is called when the stream has ended, after the last event. It appends
	// what is missing to end a complete answer properly; ok is false if the answer
	// is incomplete, and then nothing is appended and the stream has failed.
	Finish(dst []byte) (out []byte, ok bool)
	// AppendError appends an error of the gateway to a stream that has begun, as an event
	// of the format, and the end of the stream.
	AppendError(dst []byte, e *apierr.Error, requestID string) []byte
	// Failure returns what the provider sent in place of an answer: the data of the
	// event, or the body. It is nil if there was none, and good until the next call
	// of Event or Release.
	Failure() []byte
	// Usage returns what the provider has reported, normalised. reported is false
	// if no final report was among it: then the usage may hold the input alone, or
	// nothing, and the rest has to be estimated.
	Usage() (usage price.Usage, reported bool)
	// DeliveredTokens estimates the output delivered so far: a quarter of the bytes
	// of text, reasoning and tool calls, rounded up. A JSON answer is measured only
	// if it reports no usage.
	DeliveredTokens() int64
	// ProviderID returns the provider's own id of the answer, empty if it gave none.
	ProviderID() string
	// Release gives the Answer back for reuse. Nothing of it may be used afterwards.
	Release()
}

// Tokens returns the tokens that n bytes of text are estimated as: a quarter,
// rounded up.
func Tokens(n int64) int64 { return (n + 3) / 4 }
