package call

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ProblemError is a response with an error status.
type ProblemError struct {
	// Status is the HTTP status.
	Status int
	// Kind is the last part of the problem's type, such as "not_found"; empty if the response is not a problem document.
	Kind   string
	Title  string
	Detail string
	// Instance is the id of the request.
	Instance string
	Fields   []FieldError
	// Foreign is set if the response has not the form of the admin API's errors.
	Foreign bool
	// RetryAfter is the pause that the server asks for; zero for none.
	RetryAfter time.Duration
}

// FieldError describes an invalid member of the input.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error returns one line.
func (e *ProblemError) Error() string {
	text := fmt.Sprintf("%s (%d", e.Title, e.Status)
	if e.Kind != "" {
		text += " " + e.Kind
	}
	text += ")"
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// newProblem decodes the body of an error.
func newProblem(answer *http.Response, text []byte) *ProblemError {
	var doc struct {
		Type     string       `json:"type"`
		Title    string       `json:"title"`
		Detail   string       `json:"detail"`
		Instance string       `json:"instance"`
		Errors   []FieldError `json:"errors"`
	}

	p := &ProblemError{Status: answer.StatusCode, Title: http.StatusText(answer.StatusCode), RetryAfter: retryAfter(answer.Header)}
	if json.Unmarshal(text, &doc) != nil || doc.Title == "" {
		// The response comes from a load balancer or another server.
		p.Foreign, p.Detail = true, firstLine(string(text))
		return p
	}

	p.Kind = doc.Type[strings.LastIndexAny(doc.Type, ":/")+1:]
	p.Title, p.Detail, p.Instance, p.Fields = doc.Title, doc.Detail, doc.Instance, doc.Errors
	return p
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	const most = 200
	if len(line) > most {
		line = line[:most] + "…"
	}
	return line
}

// UnreachableError is a request without a response.
type UnreachableError struct {
	Server string
	// Key is the Idempotency-Key. The server may have executed the request.
	Key string
	Err error
}

// Error returns the server and the cause.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no response from %s: %v", e.Server, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }
