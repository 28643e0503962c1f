// Package provider defines a call to a model provider: the request, its answer, and the consequences of a failure for
// the client and for the next routes. Package upstream performs the calls.
//
// Headers of a provider are part of Answer only; its callers decide which of them a client gets. Error texts of a
// provider reach a client only after package classify has cleaned them. Failure.Error contains none of them, so that
// it can be logged.
package provider

import (
	"errors"
	"io"
	"net/http"

	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/catalogkv"
)

// The errors of a call that a time limit has ended.
var (
	ErrFirstByteTimeout = errors.New("provider: no answer within the time limit")
	ErrIdleTimeout      = errors.New("provider: no further bytes within the time limit")
	ErrTotalTimeout     = errors.New("provider: the answer took longer than the time limit")
	// ErrFirstTokenTimeout ends a call whose route must begin its output earlier, while another route can be called.
	ErrFirstTokenTimeout = errors.New("provider: no output within the time limit of the route")
)

// Call is one request to a provider.
type Call struct {
	route.Choice
	Format catalogkv.Format
	Method string
	// Path is appended to the provider's base URL. Path and Query are escaped.
	Path, Query string
	// Body is sent as it is; nil sends none. ContentType is its media type.
	Body        *Body
	ContentType string
	// Accept is the Accept header; empty means application/json.
	Accept string
	// Range is the Range header of a download, empty for none.
	Range string
	// Beta names the beta features that the body needs, separated by commas; empty for none.
	Beta string
	// Signature has the headers that authenticate this one call in place of the credential; nil: the credential is sent.
	Signature http.Header
	// IdempotencyKey is sent with the creation of an object that must not be created twice; empty for other calls.
	IdempotencyKey string
}

// AddQuery adds a part to the query.
func (c *Call) AddQuery(part string) {
	if c.Query != "" {
		part = c.Query + "&" + part
	}
	c.Query = part
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

// NoAwait turns a reader that cannot wait without a buffer into an AnswerBody. Await returns at once.
type NoAwait struct{ io.ReadCloser }

func (NoAwait) Await() error { return nil }
