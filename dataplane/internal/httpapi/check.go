package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

// keyText returns the API key from either of its headers. present reports whether a client sent either header, even an
// empty one.
func keyText(h http.Header) (text string, present bool) {
	authorization, bearer := h["Authorization"], ""
	if len(authorization) > 0 {
		scheme, rest, _ := strings.Cut(authorization[0], " ")
		if strings.EqualFold(scheme, "Bearer") {
			bearer = strings.TrimSpace(rest)
		}
	}
	plain, hasPlain := h["X-Api-Key"]
	switch {
	case bearer != "":
		return bearer, true
	case hasPlain:
		return strings.TrimSpace(plain[0]), true
	default:
		return "", len(authorization) > 0
	}
}

// authenticate returns the API key of the request, which it also sets in the exchange.
func (s *Server) authenticate(x *exchange, r *http.Request) (*auth.Key, error) {
	text, _ := keyText(r.Header)
	key, err := s.Keys.Lookup(r.Context(), text)
	if err != nil {
		return nil, fmt.Errorf("look up key: %w", err)
	}
	x.key = key
	return key, nil
}

// authenticateReader authenticates a request that is answered without an admission. The session must be valid: without
// one the proxy would not know that the key was revoked.
func (s *Server) authenticateReader(x *exchange, r *http.Request) (*auth.Key, error) {
	key, err := s.authenticate(x, r)
	if err != nil {
		return nil, err
	}
	if err := s.Admission.Check(r.Context(), key); err != nil {
		return nil, fmt.Errorf("check key: %w", err)
	}
	return key, nil
}

// maxMaintenanceRetryAfter bounds the Retry-After during maintenance, which may end early.
const maxMaintenanceRetryAfter = time.Hour

// checkMaintenance returns the error for a request during maintenance, nil if there is none.
func checkMaintenance(m *catalogkv.Maintenance, now time.Time) error {
	if !m.Active(now) {
		return nil
	}
	e := apierr.New(http.StatusServiceUnavailable, apierr.ServiceUnavailable, m.Message)
	if e.Message == "" {
		e.Message = "The service is under maintenance."
	}
	if m.UntilUnix > 0 {
		e.RetryAfter = min(time.Unix(m.UntilUnix, 0).Sub(now), maxMaintenanceRetryAfter)
	}
	return e
}

// The limits of request bodies, in bytes.
const (
	maxTextBody  = 25 << 20
	maxMediaBody = 70 << 20
)

func bodyLimit(f catalogkv.Format) int64 {
	if f.Type() == catalogkv.Text {
		return maxTextBody
	}
	return maxMediaBody
}

var errTooLarge = errors.New("httpapi: body too large")

func tooLarge(limit int64) *apierr.Error {
	return apierr.New(http.StatusRequestEntityTooLarge, apierr.InvalidRequest, fmt.Sprintf("The request body is larger than the limit of %d MiB.", limit>>20))
}

// readBody reads the request body into a pooled buffer, which the caller puts back.
func (s *Server) readBody(x *exchange, r *http.Request, limit int64) (*[]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit).WithCause(errTooLarge)
	}
	control := http.NewResponseController(x.ResponseWriter)
	if s.cfg.BodyTimeout > 0 {
		// If the connection has no deadlines, the server's own timeouts apply.
		_ = control.SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout))
	}
	b := getBuffer()
	data, err := readAll((*b)[:0], r.Body, r.ContentLength, limit)
	*b = data
	if s.cfg.BodyTimeout > 0 {
		_ = control.SetReadDeadline(time.Time{})
	}
	switch {
	case errors.Is(err, errTooLarge):
		putBuffer(b)
		return nil, tooLarge(limit).WithCause(err)
	case err != nil:
		putBuffer(b)
		return nil, apierr.New(http.StatusBadRequest, apierr.InvalidRequest, "The request body could not be read completely.").WithCause(err)
	}
	return b, nil
}

// readAll reads up to limit bytes into dst. length is the declared length, negative if unknown.
func readAll(dst []byte, r io.Reader, length, limit int64) ([]byte, error) {
	// A client can declare any length without sending the bytes, so at most 1 MiB is allocated in advance.
	if want := int(min(max(length, 512), 1<<20)) + 1; cap(dst) < want {
		dst = make([]byte, 0, want)
	}
	for {
		if int64(len(dst)) > limit {
			return dst, errTooLarge
		}
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			if int64(len(dst)) > limit {
				return dst, errTooLarge
			}
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// invalidBody is the error for a body that is not a valid JSON object.
func invalidBody(err error) *apierr.Error {
	e := apierr.New(http.StatusBadRequest, apierr.InvalidRequest, "").WithCause(err)
	var duplicate *jsonspan.DuplicateError
	var syntax *jsonspan.SyntaxError
	switch {
	case errors.As(err, &duplicate):
		e.Message, e.Param = "The request body contains the member '"+duplicate.Path+"' more than once.", duplicate.Path
	case errors.As(err, &syntax):
		e.Message = fmt.Sprintf("The request body is not a valid JSON object: %s at byte %d.", syntax.Msg, syntax.Offset)
	default:
		e.Message = "The request body is not a valid JSON object."
	}
	return e
}

// findModel returns the model if it exists, is visible to the account and supports the endpoint's format. It sets the
// model in the exchange.
func (s *Server) findModel(x *exchange, key *auth.Key, snapshot *catalog.Snapshot, name string, f catalogkv.Format) (*catalog.Model, error) {
	m := snapshot.Model(name, key.AccountID)
	if m == nil || !m.Supports(f) {
		e := apierr.New(http.StatusNotFound, apierr.ModelNotFound, "The model '"+shorten(name)+"' does not exist, is not available to you, or does not support this endpoint.")
		e.Param = "model"
		return nil, e
	}
	x.model = m.ID
	return m, nil
}

// maxName bounds the length of a model name that a client sent and an error message repeats, in bytes.
const maxName = 128

func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	end := maxName
	for end > 0 && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + "…"
}

// refusalError is the error for a request that was refused admission.
func refusalError(r *admission.RefusedError) *apierr.Error {
	available, reserved := money.Nano(max(r.Free, 0)), money.Nano(r.Reserved)
	switch r.Reason {
	case wire.KeyLimitSpent:
		return apierr.New(http.StatusForbidden, apierr.SpendLimitExceeded, fmt.Sprintf("The spend limit of this API key is reached: %s remains.", available))
	case wire.KeyLimitReserved:
		return apierr.New(http.StatusForbidden, apierr.SpendLimitExceeded,
			fmt.Sprintf("The rest of this API key's spend limit is reserved for running requests: %s is available, %s is reserved.", available, reserved))
	case wire.NoSlot:
		return apierr.New(http.StatusTooManyRequests, apierr.RateLimitExceeded, "This account has too many concurrent requests. Please try again when one of them has finished.")
	case wire.BalanceReserved:
		return apierr.New(http.StatusPaymentRequired, apierr.InsufficientQuota,
			fmt.Sprintf("The rest of the balance is reserved for running requests: %s is available, %s is reserved.", available, reserved))
	case wire.BalanceSpent:
		return apierr.New(http.StatusPaymentRequired, apierr.InsufficientQuota,
			fmt.Sprintf("The balance is exhausted: %s is available, %s is reserved for running requests.", available, reserved))
	default: // a reason that a later release of the control plane has added
		return errUnavailable
	}
}

// errNoRoute is the error for a model that the account may use but that has no route that can be called now.
var errNoRoute = apierr.New(http.StatusServiceUnavailable, apierr.None, "The model is temporarily unavailable. Please try again later.")
