package problem

import (
	"errors"
	"fmt"
)

// The errors of HTTP itself.
var (
	ErrForbidden      = errors.New("httpapi: the token does not have the scope")
	ErrBodyTooLarge   = errors.New("httpapi: the body is too large")
	ErrMediaType      = errors.New("httpapi: unsupported media type")
	ErrNoEndpoint     = errors.New("httpapi: no such endpoint")
	ErrMethod         = errors.New("httpapi: method not allowed")
	ErrMalformedParam = errors.New("httpapi: malformed parameter")
	// ErrTruncated is returned for an export that failed after its first bytes were sent. The connection is then
	// aborted, so that the client does not take what it has received for the whole.
	ErrTruncated = errors.New("httpapi: the export is truncated")
)

// explained is an error with a detail for the client.
type explained struct {
	err    error
	detail string
}

// Explain adds a detail for the client to an error of the table.
func Explain(err error, format string, args ...any) error {
	return &explained{err, fmt.Sprintf(format, args...)}
}

// Error returns the error with the detail.
func (e *explained) Error() string { return e.err.Error() + ": " + e.detail }

// Unwrap returns the error of the table.
func (e *explained) Unwrap() error { return e.err }
