// Package problem contains the table that maps errors to problem documents.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"time"

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
	"modelgateway/controlplane/internal/ledgercheck"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/providerbill"
	"modelgateway/controlplane/internal/recovery"
	"modelgateway/controlplane/internal/rotation"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/controlplane/internal/signin"
	"modelgateway/controlplane/internal/spendlimit"
	"modelgateway/controlplane/internal/statement"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/controlplane/internal/usage"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/controlplane/internal/webhook"
)

// typePrefix is the beginning of every problem type.
const typePrefix = "/problems/"

// Kind is a kind of problem.
type Kind struct {
	Status int
	// Code is the stable end of the type URI.
	Code  string
	Title string
}

var (
	internal     = Kind{http.StatusInternalServerError, "internal_error", "Internal error"}
	invalidInput = Kind{http.StatusBadRequest, "invalid_input", "The request is invalid"}
)

// kinds maps the errors of all domain packages to problems. All other errors are internal errors.
var kinds = []struct {
	err  error
	kind Kind
}{
	{account.ErrNotFound, Kind{http.StatusNotFound, "not_found", "Account not found"}},
	{account.ErrExternalIDTaken, Kind{http.StatusConflict, "external_id_taken", "Another account has this external id"}},
	{key.ErrNotFound, Kind{http.StatusNotFound, "not_found", "API key not found"}},
	{key.ErrExternalIDTaken, Kind{http.StatusConflict, "external_id_taken", "Another API key of the account has this external id"}},
	{key.ErrHashTaken, Kind{http.StatusConflict, "hash_taken", "Another account has an API key with this hash"}},
	{
		key.ErrNotRevealable,
		Kind{http.StatusConflict, "not_revealable", "Only the hash of this API key is known, so its secret cannot be shown"},
	},
	{providerbill.ErrNotFound, Kind{http.StatusNotFound, "not_found", "Bill not found"}},
	{
		providerbill.ErrImported,
		Kind{http.StatusConflict, "bill_imported", "The file is imported already, with another provider, credential or time zone"},
	},
	{providerbill.ErrBusy, Kind{http.StatusTooManyRequests, "import_running", "This control plane imports another bill"}},
	{providerbill.ErrTooLarge, Kind{http.StatusRequestEntityTooLarge, "body_too_large", "The file is larger than 64 MiB"}},
	{
		providerbill.ErrRecordsDropped,
		Kind{http.StatusConflict, "records_dropped", "The usage records of the bill's days are not kept any more"},
	},
	{project.ErrNotFound, Kind{http.StatusNotFound, "not_found", "Project not found"}},
	{project.ErrExternalIDTaken, Kind{http.StatusConflict, "external_id_taken", "Another project of the account has this external id"}},
	{project.ErrInUse, Kind{http.StatusConflict, "project_in_use", "An API key that is not revoked is in the project"}},
	{spendlimit.ErrNotFound, Kind{http.StatusNotFound, "not_found", "Limit not found"}},
	{spendlimit.ErrTooMany, Kind{http.StatusConflict, "too_many_limits", "An account, a project and a key of it have at most 7 limits"}},
	{spendlimit.ErrNoWindow, Kind{http.StatusConflict, "no_window", "No request has needed the current window of the limit yet"}},
	{key.ErrRevoked, Kind{http.StatusConflict, "key_revoked", "The API key is revoked"}},
	{ledger.ErrReferenceTaken, Kind{http.StatusConflict, "reference_taken", "The reference was used for another ledger transaction"}},
	{ledger.ErrNoCredit, Kind{http.StatusConflict, "no_such_credit", "The account has no credit with this id"}},
	{ledger.ErrRefundTooLarge, Kind{http.StatusConflict, "refund_too_large", "The refunds would exceed what they refund"}},
	{ledger.ErrNoRequest, Kind{http.StatusConflict, "no_such_request", "The account has no settled request with this id"}},
	{
		ledger.ErrOverdrawn,
		Kind{http.StatusConflict, "balance_too_low", "The balance would be negative; allow_negative_balance books it nevertheless"},
	},
	{
		ledger.ErrOutOfRange,
		Kind{http.StatusConflict, "amount_out_of_range", "The sum of the account's bookings would exceed the limit"},
	},
	{ledgercheck.ErrNotFound, Kind{http.StatusNotFound, "not_found", "Run of a ledger check not found"}},
	{
		usage.ErrRecordsDropped,
		Kind{http.StatusConflict, "records_dropped", "The usage records of the period were dropped; days of UTC are kept"},
	},
	{catalog.ErrModelNotFound, Kind{http.StatusNotFound, "not_found", "Model not found"}},
	{catalog.ErrProviderNotFound, Kind{http.StatusNotFound, "not_found", "Provider not found"}},
	{catalog.ErrCredentialNotFound, Kind{http.StatusNotFound, "not_found", "Credential not found"}},
	{catalog.ErrRouteNotFound, Kind{http.StatusNotFound, "not_found", "Route not found"}},
	{catalog.ErrPriceNotFound, Kind{http.StatusNotFound, "not_found", "Scheduled price not found"}},
	{catalog.ErrInUse, Kind{http.StatusConflict, "in_use", "Another catalog entry refers to it"}},
	{archive.ErrNotClosed, Kind{http.StatusConflict, "month_not_closed", "The month is not closed yet"}},
	{
		statement.ErrTooLong,
		Kind{
			http.StatusUnprocessableEntity,
			"statement_too_long",
			"The statement has too many lines: shorten the period or group by fewer properties",
		},
	},
	{usage.ErrNotFound, Kind{http.StatusNotFound, "not_found", "Request not found, or not settled yet"}},
	{
		usage.ErrTooMany,
		Kind{http.StatusUnprocessableEntity, "preview_too_large", "The period has more than 5 million requests: shorten it"},
	},
	{usage.ErrBusy, Kind{http.StatusTooManyRequests, "too_many_previews", "Other previews are running. Retry later."}},
	{rotation.ErrRunning, Kind{http.StatusConflict, "rotation_running", "A rotation to another key is running"}},
	{webhook.ErrNotFound, Kind{http.StatusNotFound, "not_found", "Webhook endpoint not found"}},
	{webhook.ErrDeliveryNotFound, Kind{http.StatusNotFound, "not_found", "Delivery not found"}},
	{settle.ErrNotQuarantined, Kind{http.StatusNotFound, "not_found", "Quarantined event not found"}},
	{settle.ErrAlreadyResolved, Kind{http.StatusConflict, "already_resolved", "The event was already released or dismissed"}},
	{settle.ErrCannotSettle, Kind{http.StatusConflict, "cannot_be_settled", "The event still cannot be settled"}},
	{videojob.ErrNotFound, Kind{http.StatusNotFound, "not_found", "Video job not found"}},
	{
		traffic.ErrTooManyTails,
		Kind{http.StatusTooManyRequests, "too_many_tails", "Too many tails of requests or streams of the traffic are open"},
	},
	{admin.ErrUnauthenticated, Kind{http.StatusUnauthorized, "unauthenticated", "The admin token is missing or invalid"}},
	{admin.ErrExpired, Kind{http.StatusUnauthorized, "token_expired", "The admin token has expired"}},
	{admin.ErrLocked, Kind{http.StatusTooManyRequests, "too_many_failures", "Too many failed authentication attempts"}},
	{admin.ErrLimitReached, Kind{http.StatusTooManyRequests, "token_limit_reached", "A daily limit of the admin token is reached"}},
	{recovery.ErrNotServing, recovering},
	{recovery.ErrFenced, recovering},
	{recovery.ErrNoAnswer, Kind{http.StatusServiceUnavailable, "database_unavailable", "The database is unavailable. Retry later."}},
	{
		admin.ErrUnavailable,
		Kind{
			http.StatusServiceUnavailable,
			"identity_provider_unavailable",
			"The identity provider is unavailable, so the token cannot be verified",
		},
	},
	{signin.ErrNoSession, Kind{http.StatusNotFound, "not_found", "Console session not found"}},
	{admin.ErrNotFound, Kind{http.StatusNotFound, "not_found", "Admin token not found"}},
	{
		admin.ErrIssued,
		Kind{
			http.StatusConflict,
			"already_issued",
			"The token was already issued and its secret cannot be shown again: revoke it and create another",
		},
	},
	{etag.ErrExists, Kind{http.StatusPreconditionFailed, "already_exists", "The object exists already"}},
	{etag.ErrMismatch, Kind{http.StatusPreconditionFailed, "precondition_failed", "The object has changed since the version in If-Match"}},
	{idempotency.ErrConflict, Kind{http.StatusConflict, "idempotency_conflict", "The Idempotency-Key was used for another request"}},
	{ErrForbidden, Kind{http.StatusForbidden, "insufficient_scope", "The token does not have the required scope"}},
	{ErrBodyTooLarge, Kind{http.StatusRequestEntityTooLarge, "body_too_large", "The body is too large"}},
	{ErrMediaType, Kind{http.StatusUnsupportedMediaType, "unsupported_media_type", "Unsupported media type"}},
	{ErrNoEndpoint, Kind{http.StatusNotFound, "not_found", "Endpoint not found"}},
	{ErrMethod, Kind{http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed"}},
	{ErrMalformedParam, Kind{http.StatusBadRequest, "invalid_input", "A parameter is malformed"}},
}

// recovering is the kind of a replica that may not use the database before it is certain that no
// commits were lost.
var recovering = Kind{http.StatusServiceUnavailable, "database_unavailable", "The database is recovering. Retry later."}

// Writer writes errors as problem documents (RFC 9457). A client sees only the
// texts of the table and of field errors; the text of an error goes to the log.
type Writer struct{ Log *slog.Logger }

// Handle is the echo.HTTPErrorHandler of the admin API.
func (p Writer) Handle(err error, c echo.Context) {
	if c.Response().Committed {
		if errors.Is(err, ErrTruncated) && !clientGone(c.Request().Context()) {
			p.Log.ErrorContext(c.Request().Context(), "export truncated", "route", c.Path(), "error", err)
		}
		return
	}

	id := c.Response().Header().Get(echo.HeaderXRequestID)
	of, errs := Classify(err)
	if (of == internal || errors.Is(err, recovery.ErrNoAnswer)) && !clientGone(c.Request().Context()) {
		p.Log.ErrorContext(c.Request().Context(), "admin request failed", "request_id", id, "route", c.Path(), "error", err)
	}

	doc := gen.Problem{
		Type:     typePrefix + of.Code,
		Title:    of.Title,
		Status:   of.Status,
		Instance: &id,
		Errors:   errs,
	}
	if withDetail, ok := errors.AsType[*explained](err); ok {
		doc.Detail = &withDetail.detail
	}

	text, failure := json.Marshal(doc)
	if failure != nil { // strings and integers always marshal
		panic(failure)
	}
	if locked, ok := errors.AsType[*admin.LockedError](err); ok {
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(locked.RetryAfter.Seconds()))))
	}
	if errors.Is(err, admin.ErrLimitReached) {
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(admin.UntilReset(time.Now()).Seconds()))))
	}
	if of.Status == http.StatusUnauthorized {
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, `Bearer realm="admin"`)
	}

	_ = c.Blob(of.Status, "application/problem+json", text) // fails only if the client has closed the connection
}

// Classify returns the kind of problem of an error, and its field errors.
func Classify(err error) (Kind, []gen.FieldError) {
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

	if isTooLarge(err) {
		err = ErrBodyTooLarge
	}

	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind, nil
		}
	}

	return internal, nil
}

// fromEcho translates an error of the router or of the generated code.
func fromEcho(web *echo.HTTPError) error {
	switch web.Code {
	case http.StatusNotFound:
		return ErrNoEndpoint
	case http.StatusMethodNotAllowed:
		return ErrMethod
	case http.StatusBadRequest:
		return malformed(web)
	default:
		return web
	}
}

// malformedForm matches the errors of the generated code about parameters that it cannot parse.
var malformedForm = regexp.MustCompile(`^(?:Invalid format for parameter|Expected one value for) ([A-Za-z0-9_-]+)`)

// malformed returns a field error that names the parameter.
func malformed(web *echo.HTTPError) error {
	text, _ := web.Message.(string)
	if found := malformedForm.FindStringSubmatch(text); found != nil {
		return validation.New(found[1], "does not have the format that the API document describes")
	}
	return ErrMalformedParam
}

// isTooLarge reports whether reading a body failed because of its size.
func isTooLarge(err error) bool {
	var limit *http.MaxBytesError
	return errors.As(err, &limit)
}

// clientGone reports whether the client has closed the connection.
func clientGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
