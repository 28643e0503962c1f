package adminclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxProblemBytes bounds how much of an error response is read.
const maxProblemBytes = 1 << 20

// Error is a response with an error status.
type Error struct {
	StatusCode int
	// Code names the problem type, such as "not_found"; the API document lists them. It is empty if the response was
	// not a problem document, for example because a load balancer sent it.
	Code string
	// RetryAfter is how long to wait before the request is repeated; zero if the server names no time.
	RetryAfter time.Duration
	// Problem is the problem document. Without one, its title is the HTTP status.
	Problem Problem
	// Header and Body are those of the response; a body of more than 1 MiB is truncated.
	Header http.Header
	Body   []byte
}

// Error returns the title, the status, the detail and every field that is wrong.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d)", e.Problem.Title, e.StatusCode)
	if e.Problem.Detail != nil {
		b.WriteString(": " + *e.Problem.Detail)
	}
	for i, field := range e.Problem.Errors {
		b.WriteString([]string{": ", "; "}[min(i, 1)] + field.Field + " " + field.Detail)
	}
	return b.String()
}

// Code returns the code of an *Error that err is or wraps, otherwise "".
func Code(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func readError(answer *http.Response) *Error {
	e := &Error{StatusCode: answer.StatusCode, Header: answer.Header}
	e.Body, _ = io.ReadAll(io.LimitReader(answer.Body, maxProblemBytes))
	if err := json.Unmarshal(e.Body, &e.Problem); err != nil || e.Problem.Title == "" {
		text := http.StatusText(answer.StatusCode)
		e.Problem = Problem{Status: answer.StatusCode, Title: text}
	}
	e.Code = e.Problem.Type[strings.LastIndexByte(e.Problem.Type, '/')+1:]
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
