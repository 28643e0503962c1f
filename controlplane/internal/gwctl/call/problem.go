package call

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ProblemError is an answer that says no.
type ProblemError struct {
	// Status is that of HTTP.
	Status int
	// Kind is the stable end of the problem's type, such as "not_found"; empty if the answer is no problem document.
	Kind   string
	Title  string
	Detail string
	// Instance is the request's id at the server.
	Instance string
	Fields   []FieldError
	// RetryAfter is the pause that the server asks for.
	RetryAfter time.Duration
}

// FieldError is what is wrong with one member of the input.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error is one line.
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

// newProblem reads the body of an error, whoever wrote it.
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
		// Something in between answered: a load balancer, or another server.
		p.Detail = firstLine(string(text))
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

// UnreachableError is a call without an answer.
type UnreachableError struct {
	Server string
	// Key is the Idempotency-Key of a call that may have been done all the same.
	Key string
	Err error
}

// Error says how to go on.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s cannot be reached: %v", e.Server, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }
