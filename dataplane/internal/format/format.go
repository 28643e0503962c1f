// Package format defines the common part of the wire formats: how a request is read, checked and rewritten for a
// provider, and how an answer is read for its usage and rewritten for the client. Each format has a package below this
// one (chat, responses, messages, images, videos) that implements Dialect. Package app lists the formats that the
// gateway serves; package conformance tests all of them.
//
// A request passes through Dialect.Read, Request.Check, Request.EstimateInput and Request.AppendUpstream. Its answer
// passes through Dialect.NewAnswer and then either Answer.JSON, or Answer.Event for each event and Answer.Finish.
//
// The package does not handle HTTP, connections, prices or reservations, and does not interpret errors of providers:
// Answer.Failure returns them for package classify.
//
// Invariants:
//
//   - Only necessary values are decoded, and nothing is encoded again: bytes that no rule
//     concerns are passed on as they came.
//   - A parameter that the policy does not name is never sent to a provider.
//   - An event that needs no change costs no memory and almost no time.
//   - No bytes of a provider cause a panic, or break the framing of an event stream.
package format

import (
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/dataplane/internal/sse"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// Dialect is one wire format. Its implementations have no state.
type Dialect interface {
	// Format returns the name of the format.
	Format() catalogkv.Format
	// Policy returns the format's parameter table. Models and routes extend it with Policy.With.
	Policy() *Policy
	// Read reads the parameters that the gateway needs from a parsed body. It fails only if the body names no model,
	// with 400 invalid_request. It leaves other errors to Request.Check, because an unknown model is reported first.
	// The Request refers to obj until it is released.
	Read(obj *jsonspan.Object) (*Request, *apierr.Error)
	// NewAnswer returns the reader of one provider answer.
	NewAnswer(cfg AnswerConfig) Answer
}

// AnswerConfig describes the request of an answer.
type AnswerConfig struct {
	// Request is the client's request. Only NewAnswer reads it: it may be released while the answer is read.
	Request *Request
	// ClientModel is the model name in the client's answer. It replaces any name in the provider's answer. Empty: the
	// model name of Request.
	ClientModel string
	// IncludeUsage gives the client of a chat stream the usage though Request does not ask for it.
	IncludeUsage bool
	// ID replaces the provider's id in a video object. Empty keeps it.
	ID string
}

// Kind is the kind of an event.
type Kind uint8

// The kinds of events.
const (
	// Other is a comment, an event without output, or an event that the client does not get.
	Other Kind = iota
	// Content carries output of the model.
	Content
	// Terminal is the regular end of a stream. Events after it do not change the outcome.
	Terminal
	// Failure is an error of the provider. Nothing was appended: the caller classifies Answer.Failure and ends the
	// stream with Answer.AppendError.
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

// Answer reads one provider answer and rewrites it for the client. One goroutine uses it, either for one JSON answer
// or for one stream, and returns it with Release.
type Answer interface {
	// JSON reads a complete answer and returns the client's: body itself if nothing has to change, otherwise dst
	// extended. ok is false if body is no answer, even if its status was 200: an error object, an image answer without
	// an image, or no JSON. Failure then returns the body.
	JSON(dst, body []byte) (out []byte, ok bool)
	// Event reads one event of a stream and appends the client's event to dst.
	Event(dst []byte, ev sse.Event) ([]byte, Kind)
	// Finish is called after the last event. It appends the end of the stream if the provider left it out after a
	// complete answer. ok is false if the answer is incomplete: then nothing is appended and the stream has failed.
	Finish(dst []byte) (out []byte, ok bool)
	// AppendError appends an error of the gateway to a stream that has begun, as an event of the format, and the end
	// of the stream.
	AppendError(dst []byte, e *apierr.Error, requestID string) []byte
	// Failure returns the payload that the provider sent instead of an answer: the data of the event, or the body. It
	// is nil if there was no failure, and valid until the next call of Event or Release.
	Failure() []byte
	// Usage returns the normalised usage that the provider has reported. reported is false if there was no final
	// report: the usage may then have only the input, or nothing, and the caller estimates the rest.
	Usage() (usage price.Usage, reported bool)
	Delivery
	// Evidence returns what the answer so far shows besides its usage, by which that is judged.
	Evidence() usagereport.Evidence
	// ProviderID returns the provider's id of the answer, empty if there was none.
	ProviderID() string
	// Release returns the Answer for reuse. It must not be used afterwards.
	Release()
}

// Delivery is what a provider has delivered of an answer, whatever usage it reports.
type Delivery interface {
	// DeliveredTokens estimates the output so far: a quarter of the bytes of text, reasoning and tool calls, rounded
	// up. A JSON answer is measured only if it reports no usage.
	DeliveredTokens() int64
	// AddDelivered completes a usage that the provider has not reported by what it has delivered: text, as DeliveredTokens
	// counts it, audio, images, and calls of tools that the provider runs.
	AddDelivered(u *price.Usage)
	// Progress says how far a stream is.
	Progress() Progress
}

// Progress is how far a stream is, as far as it shows.
type Progress struct {
	// Ending reports whether the model has ended: at most the usage is still to come.
	Ending bool
	// Hides reports whether the model has reasoned without showing its reasoning, Shows whether it has shown some.
	Hides, Shows bool
}

var (
	comment = []byte(":\n\n")
	ping    = []byte("event: ping\ndata: {\"type\": \"ping\"}\n\n")
)

// SignOfLife returns what a format has for a stream that is silent: a comment, in the messages format a ping. The caller must
// not change it.
func SignOfLife(f catalogkv.Format) []byte {
	if f == catalogkv.Messages {
		return ping
	}
	return comment
}

// EstimateTokens estimates the number of tokens in n bytes of text: n/4, rounded up.
func EstimateTokens(n int64) int64 { return (n + 3) / 4 }
