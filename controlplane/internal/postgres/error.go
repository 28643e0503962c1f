package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"modelgateway/controlplane/internal/recovery"
)

// The meanings of driver errors. The stores translate them into the errors of
// their domain packages.
var (
	ErrNotFound  = errors.New("no such row")
	ErrDuplicate = errors.New("row exists already")
	ErrReference = errors.New("row refers to one that does not exist")
)

// The SQLSTATE codes that are handled.
const (
	stateUnique         = "23505"
	stateForeignKey     = "23503"
	stateSerialization  = "40001"
	stateDeadlock       = "40P01"
	stateUndefinedTable = "42P01"
	stateLockTimeout    = "55P03"
	stateShutdown       = "57P01"
	stateCrashShutdown  = "57P02"
)

const (
	// maxAttempts bounds how often InTx runs its closure.
	maxAttempts = 6
	// firstPause is the longest pause before the second attempt; it doubles from there.
	firstPause = 4 * time.Millisecond
)

// ConstraintError is the error of a write that violates a constraint. It unwraps
// to ErrDuplicate or ErrReference.
type ConstraintError struct {
	// Constraint is the name of the violated constraint or index.
	Constraint string
	kind       error
}

// Error names the constraint; it never contains values.
func (e *ConstraintError) Error() string { return fmt.Sprintf("%s (%s)", e.kind, e.Constraint) }

// Unwrap returns ErrDuplicate or ErrReference.
func (e *ConstraintError) Unwrap() error { return e.kind }

// Translate wraps a driver error with the operation and, if it has one, its
// meaning: ErrNotFound, ErrDuplicate, ErrReference or recovery.ErrNoAnswer. It
// returns nil for nil. InTx still recognises the errors after which it retries.
func Translate(operation string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("postgres: %s: %w", operation, ErrNotFound)
	}

	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case stateUnique:
			return fmt.Errorf("postgres: %s: %w", operation, &ConstraintError{pg.ConstraintName, ErrDuplicate})
		case stateForeignKey:
			return fmt.Errorf("postgres: %s: %w", operation, &ConstraintError{pg.ConstraintName, ErrReference})
		}
	}

	if isUnavailable(err) {
		return fmt.Errorf("postgres: %s: %w: %w", operation, recovery.ErrNoAnswer, err)
	}

	return fmt.Errorf("postgres: %s: %w", operation, err)
}

// isUnavailable reports whether the server did not answer or reported that it is
// shutting down.
func isUnavailable(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == stateShutdown || pg.Code == stateCrashShutdown
	}
	_, unreachable := errors.AsType[net.Error](err) // an expired deadline is also a net.Error
	return unreachable || errors.Is(err, io.ErrUnexpectedEOF)
}

// Violates reports whether a translated error is a violation of one constraint.
func Violates(err error, constraint string) bool {
	var violation *ConstraintError
	return errors.As(err, &violation) && violation.Constraint == constraint
}

// retryable reports whether a transaction failed only because of a concurrent one.
func retryable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == stateSerialization || pg.Code == stateDeadlock)
}

// IsLockTimeout reports whether a statement has waited for a lock for too long.
func IsLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == stateLockTimeout
}

// IsDataError reports whether Postgres refused the content of the rows: classes 22
// (data exception) and 23 (integrity constraint violation) of its error codes.
func IsDataError(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code[:2] == "22" || pg.Code[:2] == "23")
}

// IsDuplicateIn reports whether a row exists already in a table whose name
// begins with a prefix, such as one of its partitions.
func IsDuplicateIn(err error, tablePrefix string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == stateUnique && strings.HasPrefix(pg.TableName, tablePrefix)
}

// pause waits a random time before another attempt, so that transactions that
// collided once do not collide again.
func pause(ctx context.Context, attempt int) error {
	timer := time.NewTimer(rand.N(firstPause << (attempt - 1)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// NotFoundAs translates an error; if no row was found it returns the error of the
// domain.
func NotFoundAs(operation string, err, notFound error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return notFound
	}
	return Translate(operation, err)
}
