package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"strconv"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/archive"
	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/ledger"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/video"
	"modelgateway/controlplane/internal/webhook"
)

// The errors that arise in this package.
var (
	errForbidden      = errors.New("httpapi: the token lacks the scope")
	errTooLarge       = errors.New("httpapi: the body is too large")
	errMediaType      = errors.New("httpapi: the media type is not taken")
	errNoEndpoint     = errors.New("httpapi: no such endpoint")
	errMethod         = errors.New("httpapi: the endpoint has no such method")
	errMalformedParam = errors.New("httpapi: a parameter is malformed")
)

// explainedError is an error of the table with what a client is told beside
// its title.
type explainedError struct {
	err    error
	detail string
}

// explain gives an error of the table a detail for the client.
func explain(err error, format string, args ...any) error {
	return &explainedError{err, fmt.Sprintf(format, args...)}
}

// Error is the error with the detail.
func (e *explainedError) Error() string { return e.err.Error() + ": " + e.detail }

// Unwrap returns the error of the table.
func (e *explainedError) Unwrap() error { return e.err }

// typePrefix stands before every code in the type of a problem.
const typePrefix = "/problems/"

// kind is a kind of problem.
type kind struct {
	status int
	// code is the stable end of the type URI.
	code  string
	title string
}

var (
	internal     = kind{http.StatusInternalServerError, "internal_error", "Something went wrong inside"}
	invalidInput = kind{http.StatusBadRequest, "invalid_input", "The request is not valid"}
)

// kinds maps the errors of all domain packages to problems. What is not here
// is an internal error.
var kinds = []struct {
	err  error
	kind kind
}{
	{account.ErrNotFound, kind{http.StatusNotFound, "not_found", "There is no such account"}},
	{account.ErrExternalIDTaken, kind{http.StatusConflict, "external_id_taken", "Another account has this external id"}},
	{key.ErrNotFound, kind{http.StatusNotFound, "not_found", "There is no such key"}},
	{key.ErrExternalIDTaken, kind{http.StatusConflict, "external_id_taken", "Another key of the account has this external id"}},
	{key.ErrHashTaken, kind{http.StatusConflict, "hash_taken", "Another account has a key with this hash"}},
	{key.ErrNotRevealable, kind{http.StatusConflict, "not_revealable", "The secret of this key was never stored"}},
	{key.ErrRevoked, kind{http.StatusConflict, "key_revoked", "The key is revoked"}},
	{ledger.ErrReferenceTaken, kind{http.StatusConflict, "reference_taken", "The reference was used for another booking"}},
	{ledger.ErrNoRequest, kind{http.StatusConflict, "no_such_request", "The account has no such settled request"}},
	{ledger.ErrOutOfRange, kind{http.StatusConflict, "amount_out_of_range", "The account would have been given more in all than can be counted"}},
	{catalog.ErrModelNotFound, kind{http.StatusNotFound, "not_found", "There is no such model"}},
	{catalog.ErrProviderNotFound, kind{http.StatusNotFound, "not_found", "There is no such provider"}},
	{catalog.ErrCredentialNotFound, kind{http.StatusNotFound, "not_found", "There is no such credential"}},
	{catalog.ErrRouteNotFound, kind{http.StatusNotFound, "not_found", "There is no such route"}},
	{catalog.ErrPriceNotFound, kind{http.StatusNotFound, "not_found", "There is no such scheduled price"}},
	{catalog.ErrInUse, kind{http.StatusConflict, "in_use", "Something else in the catalog refers to it"}},
	{archive.ErrNotClosed, kind{http.StatusConflict, "month_not_closed", "The month is not closed, so its records may still grow"}},
	{statement.ErrTooLong, kind{http.StatusUnprocessableEntity, "statement_too_long", "The statement has too many lines: shorten the period or group by less"}},
	{usage.ErrNotFound, kind{http.StatusNotFound, "not_found", "There is no such request, or it is not settled yet"}},
	{rotation.ErrRunning, kind{http.StatusConflict, "rotation_running", "A rotation to another key is under way"}},
	{webhook.ErrNotFound, kind{http.StatusNotFound, "not_found", "There is no such endpoint for webhooks"}},
	{webhook.ErrDeliveryNotFound, kind{http.StatusNotFound, "not_found", "There is no such delivery"}},
	{settle.ErrNotQuarantined, kind{http.StatusNotFound, "not_found", "There is no such event in quarantine"}},
	{settle.ErrResolved, kind{http.StatusConflict, "already_resolved", "The event was released or dismissed before"}},
	{settle.ErrStillFaulty, kind{http.StatusConflict, "still_faulty", "The event still cannot be settled"}},
	{video.ErrNotFound, kind{http.StatusNotFound, "not_found", "There is no such video job"}},
	{admin.ErrUnauthenticated, kind{http.StatusUnauthorized, "unauthenticated", "The request carries no valid admin token"}},
	{admin.ErrExpired, kind{http.StatusUnauthorized, "token_expired", "The admin token has expired"}},
	{admin.ErrLocked, kind{http.StatusTooManyRequests, "too_many_failures", "Too many attempts have failed: wait"}},
	{recovery.ErrNotServing, unentered},
	{recovery.ErrFenced, unentered},
	{recovery.ErrNoAnswer, kind{http.StatusServiceUnavailable, "database_unavailable", "The database does not answer: ask again in a moment"}},
	{admin.ErrUnavailable, kind{http.StatusServiceUnavailable, "identity_provider_unavailable", "Who signed the token cannot be checked now"}},
	{admin.ErrNotFound, kind{http.StatusNotFound, "not_found", "There is no such token"}},
	{admin.ErrIssued, kind{http.StatusConflict, "already_issued", "The token was issued before and its secret is not kept: revoke it and issue another"}},
	{etag.ErrMismatch, kind{http.StatusPreconditionFailed, "precondition_failed", "The object is in another state than If-Match names"}},
	{idempotency.ErrConflict, kind{http.StatusConflict, "idempotency_conflict", "The Idempotency-Key was used for another request"}},
	{errForbidden, kind{http.StatusForbidden, "insufficient_scope", "The token lacks the scope for this operation"}},
	{errTooLarge, kind{http.StatusRequestEntityTooLarge, "body_too_large", "The body is too large"}},
	{errMediaType, kind{http.StatusUnsupportedMediaType, "unsupported_media_type", "The media type is not taken here"}},
	{errNoEndpoint, kind{http.StatusNotFound, "not_found", "There is no such endpoint"}},
	{errMethod, kind{http.StatusMethodNotAllowed, "method_not_allowed", "The endpoint has no such method"}},
	{errMalformedParam, kind{http.StatusBadRequest, "invalid_input", "A parameter is malformed"}},
}

// unentered is the kind while a replica waits for the others, or is told to come in again.
var unentered = kind{http.StatusServiceUnavailable, "database_unavailable", "It is not yet certain that the database has lost nothing: ask again in a moment"}

// problems writes errors as problem documents (RFC 9457). The text of an error
// is for the log; a client reads only what the table and faults say.
type problems struct{ log *slog.Logger }

func (p problems) handle(err error, c echo.Context) {
	if c.Response().Committed {
		if errors.Is(err, errCut) && !ended(c.Request().Context()) {
			p.log.ErrorContext(c.Request().Context(), "export broke off", "route", c.Path(), "error", err)
		}
		return
	}
	id := c.Response().Header().Get(echo.HeaderXRequestID)
	of, errs := classify(err)
	if (of == internal || errors.Is(err, recovery.ErrNoAnswer)) && !ended(c.Request().Context()) {
		p.log.ErrorContext(c.Request().Context(), "admin request failed", "request_id", id, "route", c.Path(), "error", err)
	}
	doc := gen.Problem{Type: typePrefix + of.code, Title: of.title, Status: of.status, Instance: &id, Errors: errs}
	if explained, ok := errors.AsType[*explainedError](err); ok {
		doc.Detail = &explained.detail
	}
	text, failure := json.Marshal(doc)
	if failure != nil { // strings and integers always marshal
		panic(failure)
	}
	if locked, ok := errors.AsType[*admin.LockedError](err); ok {
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(locked.RetryAfter.Seconds()))))
	}
	if of.status == http.StatusUnauthorized {
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, `Bearer realm="admin"`)
	}
	_ = c.Blob(of.status, "application/problem+json", text) // a client that hung up
}

// classify finds what a client is told of an error.
func classify(err error) (kind, []gen.FieldError) {
	if web, ok := errors.AsType[*echo.HTTPError](err); ok {
		err = fromEcho(web)
	}
	if invalid, ok := validation.As(err); ok {
		errs := make([]gen.FieldError, len(invalid))
		for i, f := range invalid {
			errs[i] = gen.FieldError{Field: f.Path, Detail: f.Detail}
		}
		return invalidInput, errs
	}
	if tooLarge(err) {
		err = errTooLarge
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind, nil
		}
	}
	return internal, nil
}

// fromEcho finds our error for one of the router or of the generated code.
func fromEcho(web *echo.HTTPError) error {
	switch web.Code {
	case http.StatusNotFound:
		return errNoEndpoint
	case http.StatusMethodNotAllowed:
		return errMethod
	case http.StatusBadRequest:
		return malformed(web)
	default:
		return web
	}
}

// malformedForm is how the generated code tells of a parameter that it cannot
// read. What it says besides is for programmers.
var malformedForm = regexp.MustCompile(`^(?:Invalid format for parameter|Expected one value for) ([A-Za-z0-9_-]+)`)

// malformed names the parameter that could not be read.
func malformed(web *echo.HTTPError) error {
	text, _ := web.Message.(string)
	if found := malformedForm.FindStringSubmatch(text); found != nil {
		return validation.New(found[1], "does not have the form that the API document describes")
	}
	return errMalformedParam
}
