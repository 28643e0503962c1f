// Package provider owns what a call to a model provider is: what is sent, what
// comes back, and what its failure means for the client and for the routes to
// come. Package upstream performs the calls.
//
// A provider's headers reach nobody but through Answer, for those who know
// which of them may pass. Its text reaches a client only after classify has
// cleaned it; a Failure's own Error holds none of it.
package provider

import (
	"errors"
	"io"
	"net/http"
	"time"

	"modelgateway/dataplane/internal/route"
	contract "modelgateway/shared/catalog"
)

// The reasons for which a call is cut, as causes of its context.
var (
	ErrFirstByteTimeout = errors.New("provider: no answer within the time limit")
	ErrIdleTimeout      = errors.New("provider: silent for longer than the time limit")
	ErrTotalTimeout     = errors.New("provider: the answer took longer than the time limit")
)

// Call is one request to a provider.
type Call struct {
	route.Choice
	Format contract.Format
	Method string
	// Path follows the provider's base URL; Query is appended to it.
	Path, Query string
	// Body is sent whole; nil sends none. ContentType belongs to it.
	Body        *Body
	ContentType string
	// Accept is the Accept header; empty: application/json.
	Accept string
	// Range is passed on for downloads.
	Range string
	// Header holds what the format adds, such as anthropic-beta.
	Header http.Header
	// Until is when the call must have ended; zero: the provider's limit alone applies.
	Until time.Time
	// IdempotencyKey marks a creation that must not happen twice.
	IdempotencyKey string
}

// Answer is a provider's HTTP response. The caller closes Body.
type Answer struct {
	Status int
	Header http.Header
	Body   AnswerBody
	// Length is the declared length of the body in bytes, or -1.
	Length int64
}

// AnswerBody is the body of an Answer.
type AnswerBody interface {
	io.ReadCloser
	// Await waits until Read would return at once. The caller needs no buffer while it waits.
	Await() error
}

// NoAwait makes an AnswerBody of a reader that cannot wait without a buffer: Await returns at once.
type NoAwait struct{ io.ReadCloser }

// Await implements AnswerBody.
func (NoAwait) Await() error { return nil }
