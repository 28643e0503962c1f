// Package apierr defines the errors of the public API: their codes, and the two
// envelopes in which clients get them.
//
// An Error holds the message for the client and the internal cause for the log.
// The cause is never part of an envelope.
package apierr

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the machine-readable reason of an error.
type Code string

// The codes of the public API.
const (
	InvalidRequest         Code = "invalid_request"
	UnsupportedParameter   Code = "unsupported_parameter"
	UnsupportedValue       Code = "unsupported_value"
	InvalidValue           Code = "invalid_value"
	ContextLengthExceeded  Code = "context_length_exceeded"
	ContentPolicyViolation Code = "content_policy_violation"
	InvalidImage           Code = "invalid_image"
	InvalidAPIKey          Code = "invalid_api_key"
	InsufficientQuota      Code = "insufficient_quota"
	SpendLimitExceeded     Code = "spend_limit_exceeded"
	ModelNotFound          Code = "model_not_found"
	NotFound               Code = "not_found"
	GenerationFailed       Code = "generation_failed"
	RateLimitExceeded      Code = "rate_limit_exceeded"
	UpstreamUnavailable    Code = "upstream_unavailable"
	ServiceUnavailable     Code = "service_unavailable"
	// None is for errors without a code: internal errors (500), and models without an available route (503).
	None Code = ""
)

// Error is an error that is sent to a client.
type Error struct {
	// Status is the HTTP status.
	Status int
	Code   Code
	// Message is for people. It contains no internals.
	Message string
	// Param is the dotted path of the parameter that the error is about, if any.
	Param string
	// ParamIsEmpty reports whether the error is about the parameter whose name is the empty text.
	ParamIsEmpty bool
	// Details is a JSON object for clients that act on a refusal, nil for none. Only the messages envelope has it.
	Details json.RawMessage
	// RetryAfter is how long the client should wait before a retry. It is sent in seconds, rounded up. Zero means unknown.
	RetryAfter time.Duration
	// Cause is the internal reason. It is logged, never sent.
	Cause error
}

// New returns an Error without Param, RetryAfter and Cause.
func New(status int, code Code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

// WithCause returns a copy of e with an internal cause.
func (e *Error) WithCause(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// Error returns the text for the log, with the cause. It has no words of the
// client, such as the name of a model or of a member of the body: messages repeat
// them in quotes, and everything from the first to the last quote is left out.
func (e *Error) Error() string {
	text := strconv.Itoa(e.Status) + " " + string(e.Code) + ": " + withoutQuoted(e.Message)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

func withoutQuoted(text string) string {
	const quotes = "'\""
	first, last := strings.IndexAny(text, quotes), strings.LastIndexAny(text, quotes)
	if first == last { // none, or an apostrophe
		return text
	}
	return text[:first+1] + "…" + text[last:]
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Type returns the type of the error in the common envelope.
func (e *Error) Type() string {
	switch e.Status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "insufficient_quota"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	}
	if e.Status >= http.StatusInternalServerError {
		return "server_error"
	}
	return "invalid_request_error"
}

// messagesTypes holds the type in the messages envelope by status.
var messagesTypes = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusPaymentRequired:       "billing_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusServiceUnavailable:    "overloaded_error",
}

// MessagesType returns the type of the error in the messages envelope.
func (e *Error) MessagesType() string {
	if t, ok := messagesTypes[e.Status]; ok {
		return t
	}
	if e.Status >= http.StatusInternalServerError {
		return "api_error"
	}
	return "invalid_request_error"
}

// RetryAfterSeconds returns the value of the Retry-After header, or zero for no
// header. Every 429 and every 503 service_unavailable has one.
func (e *Error) RetryAfterSeconds() int {
	seconds := int((e.RetryAfter + time.Second - 1) / time.Second)
	if e.Status == http.StatusTooManyRequests || (e.Status == http.StatusServiceUnavailable && e.Code == ServiceUnavailable) {
		return max(seconds, 1)
	}
	return seconds
}

// Permanent reports whether a retry of the same request cannot succeed.
func (e *Error) Permanent() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusUnprocessableEntity
}
