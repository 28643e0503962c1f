package httpapi

import (
	"bytes"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/validation"
)

const (
	idempotencyHeader = "Idempotency-Key"
	// replayedHeader marks an answer that was given before.
	replayedHeader = "Idempotent-Replayed"
	maxKeyLen      = 200
)

// idempotent does a POST with an Idempotency-Key once. A success is kept and
// answered again; a failure is not, so that a retry tries again, and neither
// is a 202, after which a retry waits further. A request that is not valid does
// not use up its key.
func idempotent(keeper *idempotency.Keeper, log *slog.Logger) echo.MiddlewareFunc {
	a := attempts{keeper, log}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			key, err := readKey(c.Request())
			if err != nil {
				return err
			}
			if key == "" {
				return next(c)
			}
			attempt, err := a.begin(c, key)
			if err != nil {
				return err
			}
			if before := attempt.Before; before != nil {
				c.Response().Header().Set(replayedHeader, "true")
				if before.ETag != "" {
					c.Response().Header().Set(etagHeader, before.ETag)
				}
				return c.Blob(before.Status, before.ContentType, before.Body)
			}
			record := &recorder{ResponseWriter: c.Response().Writer}
			c.Response().Writer = record
			if err := next(c); err != nil {
				a.refused(c, attempt, err)
				return err
			}
			a.answered(c, attempt, record.body.Bytes())
			return nil
		}
	}
}

// attempts is what idempotent does before and after an operation.
type attempts struct {
	keeper *idempotency.Keeper
	log    *slog.Logger
}

// begin binds a request to its key.
func (a attempts) begin(c echo.Context, key string) (idempotency.Attempt, error) {
	r := c.Request()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return idempotency.Attempt{}, err
	}
	attempt, err := a.keeper.Begin(r.Context(), idempotency.Request{
		Actor: audit.By(r.Context()).Name, Key: key, Method: r.Method, Path: r.URL.Path, BodyHash: sha256.Sum256(body),
	})
	if err != nil {
		return idempotency.Attempt{}, err
	}
	r = r.WithContext(idempotency.WithOperation(r.Context(), attempt.Operation))
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.SetRequest(r)
	return attempt, nil
}

// refused frees the key of a request that is not valid.
func (a attempts) refused(c echo.Context, attempt idempotency.Attempt, err error) {
	if of, _ := classify(err); of.status != http.StatusBadRequest {
		return
	}
	if err := a.keeper.Release(c.Request().Context(), attempt); err != nil {
		a.log.WarnContext(c.Request().Context(), "key of a refused request not freed", "route", c.Path(), "error", err)
	}
}

// answered keeps the answer of a success.
func (a attempts) answered(c echo.Context, attempt idempotency.Attempt, body []byte) {
	status, h := c.Response().Status, c.Response().Header()
	if status < http.StatusOK || status >= http.StatusMultipleChoices || status == http.StatusAccepted {
		return
	}
	answer := idempotency.Answer{Status: status, ContentType: h.Get(echo.HeaderContentType), ETag: h.Get(etagHeader), Body: body}
	if err := a.keeper.Finish(c.Request().Context(), attempt, answer); err != nil {
		// The client has its answer; a repeated request will do the operation again, which makes nothing twice.
		a.log.WarnContext(c.Request().Context(), "answer not kept", "route", c.Path(), "error", err)
	}
}

// readKey reads the Idempotency-Key of a POST; "" where there is none.
func readKey(r *http.Request) (string, error) {
	key := r.Header.Get(idempotencyHeader)
	switch {
	case r.Method != http.MethodPost:
		return "", nil
	case !readable(key):
		return "", validation.New(idempotencyHeader, notReadable)
	case utf8.RuneCountInString(key) > maxKeyLen:
		return "", validation.New(idempotencyHeader, "is longer than %d characters", maxKeyLen)
	}
	return key, nil
}

// recorder keeps a copy of what is written.
type recorder struct {
	http.ResponseWriter
	body bytes.Buffer
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	r.body.Write(b)
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the writer.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
