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

// The exit codes. Scripts rely on them: codes may be added but never changed.
const (
	// ExitOK means success.
	ExitOK = 0
	// ExitFailure is every failure without a code of its own.
	ExitFailure = 1
	// ExitUsage means that the command line or a file is wrong. Nothing was sent.
	ExitUsage = 2
	// ExitNotFound means that the object does not exist.
	ExitNotFound = 3
	// ExitRefused means that the server refused the input.
	ExitRefused = 4
	// ExitAuth means that there is no token, or that it is invalid or does not have the required scope.
	ExitAuth = 5
	// ExitConflict means that the state of the object does not allow the request.
	ExitConflict = 6
	// ExitUnreachable means that the server was unavailable, or that a change is not effective on all proxies yet.
	ExitUnreachable = 7
	// ExitDiffers means that `catalog diff` found a difference.
	ExitDiffers = 10
)

// usageError is a mistake in the command line or in a file.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitError ends the program with a code, without a message if err is nil.
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

// exitCode returns the exit code of an error.
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
		if problem.Foreign && problem.Status == http.StatusNotFound {
			return ExitFailure // it does not tell that the object does not exist
		}
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

// report prints an error.
func report(w io.Writer, err error) {
	if exit, ok := errors.AsType[*exitError](err); ok && exit.err == nil {
		return
	}

	fmt.Fprintln(w, "gwctl:", err)
	if problem, ok := errors.AsType[*call.ProblemError](err); ok {
		for _, field := range problem.Fields {
			fmt.Fprintf(w, "  %s %s\n", orWhole(field.Field), field.Detail)
		}
		if problem.Foreign && problem.Status == http.StatusNotFound {
			fmt.Fprintln(w, "  The answer does not come from the admin API. Check the address of the server.")
		}
		if problem.RetryAfter > 0 {
			fmt.Fprintf(w, "  retry after %v\n", problem.RetryAfter)
		}
		if problem.Instance != "" {
			fmt.Fprintf(w, "  request id %s\n", problem.Instance)
		}
	}

	if lost, ok := errors.AsType[*call.UnreachableError](err); ok && lost.Key != "" {
		fmt.Fprintf(w, "  The change may have been made. To retry safely, add --idempotency-key %s\n", lost.Key)
	}
}

// orWhole returns the name of a field, or of the whole input.
func orWhole(field string) string {
	if field == "" {
		return "the input"
	}
	return field
}
