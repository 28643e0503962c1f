package gwctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"modelgateway/controlplane/internal/gwctl/access"
	"modelgateway/controlplane/internal/gwctl/call"
)

// The exit codes. Scripts rely on them: they are added to, never changed.
const (
	// ExitOK says that it was done.
	ExitOK = 0
	// ExitFailure is every failure without a code of its own.
	ExitFailure = 1
	// ExitUsage says that the command line or a file is wrong; nothing was sent.
	ExitUsage = 2
	// ExitNotFound says that there is no such object.
	ExitNotFound = 3
	// ExitRefused says that the server found the input invalid, or does not take it.
	ExitRefused = 4
	// ExitAuth says that there is no token, or that it is not valid or not enough.
	ExitAuth = 5
	// ExitConflict says that the object is not as the request presumes.
	ExitConflict = 6
	// ExitUnreachable says that the server, or all of the system, was not reached in time.
	ExitUnreachable = 7
	// ExitDiffers is the answer of `catalog diff` when something would change.
	ExitDiffers = 10
)

// usageError is a mistake of who typed the command.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitError ends with a code, without a message if err is nil.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

// exitCode finds the code of an error.
func exitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return ExitUsage
	}
	if _, ok := errors.AsType[*access.TokenError](err); ok {
		return ExitAuth
	}
	if problem, ok := errors.AsType[*call.ProblemError](err); ok {
		return statusCode(problem.Status)
	}
	if _, ok := errors.AsType[*call.UnreachableError](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return ExitUnreachable
	}
	return ExitFailure
}

func statusCode(status int) int {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitAuth
	case http.StatusNotFound, http.StatusGone:
		return ExitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusLocked:
		return ExitConflict
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ExitUnreachable
	}
	if status >= http.StatusBadRequest && status < http.StatusInternalServerError {
		return ExitRefused
	}
	return ExitFailure
}

// report tells people what went wrong.
func report(w io.Writer, err error) {
	if exit, ok := errors.AsType[*exitError](err); ok && exit.err == nil {
		return
	}
	fmt.Fprintln(w, "gwctl:", err)
	if problem, ok := errors.AsType[*call.ProblemError](err); ok {
		for _, field := range problem.Fields {
			fmt.Fprintf(w, "  %s %s\n", orWhole(field.Field), field.Detail)
		}
		if problem.RetryAfter > 0 {
			fmt.Fprintf(w, "  the server asks to wait %v\n", problem.RetryAfter)
		}
		if problem.Instance != "" {
			fmt.Fprintf(w, "  request %s\n", problem.Instance)
		}
	}
	if lost, ok := errors.AsType[*call.UnreachableError](err); ok && lost.Key != "" {
		fmt.Fprintf(w, "  It may have been done. To repeat it safely add --idempotency-key %s\n", lost.Key)
	}
}

// orWhole names the place of a fault that has none.
func orWhole(field string) string {
	if field == "" {
		return "the input"
	}
	return field
}
