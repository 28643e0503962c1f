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
	"modelgateway/controlplane/internal/fault"
	"modelgateway/controlplane/internal/idempotency"
)

const (
	idempotencyHeader = "Idempotency-Key"
	// replayedHeader marks an answer that was given before.
	replayedHeader = "Idempotent-Replayed"
	maxKeyLen      = 200
)

// idempotent does a POST with an Idempotency-Key once. A success is kept and
// answered again; a failure is not, so that a retry tries again, and neither
// is a 202, after which a retry waits further.
func idempotent(keeper *idempotency.Keeper, log *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			key, err := readKey(r)
			if err != nil {
				return err
			}
			if key == "" {
				return next(c)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			request := idempotency.Request{
				Actor: audit.By(r.Context()).Name, Key: key, Method: r.Method, Path: r.URL.Path, BodyHash: sha256.Sum256(body),
			}
			operation, before, err := keeper.Begin(r.Context(), request)
			if err != nil {
				return err
			}
			if before != nil {
				c.Response().Header().Set(replayedHeader, "true")
				if before.ETag != "" {
					c.Response().Header().Set(etagHeader, before.ETag)
				}
				return c.Blob(before.Status, before.ContentType, before.Body)
			}
			r = r.WithContext(idempotency.WithOperation(r.Context(), operation))
			r.Body = io.NopCloser(bytes.NewReader(body))
			c.SetRequest(r)
			record := &recorder{ResponseWriter: c.Response().Writer}
			c.Response().Writer = record
			if err := next(c); err != nil {
				return err
			}
			status := c.Response().Status
			if status < http.StatusOK || status >= http.StatusMultipleChoices || status == http.StatusAccepted {
				return nil
			}
			h := c.Response().Header()
			answer := idempotency.Answer{
				Status: status, ContentType: h.Get(echo.HeaderContentType), ETag: h.Get(etagHeader), Body: record.body.Bytes(),
			}
			if err := keeper.Finish(r.Context(), request, operation, answer); err != nil {
				// The client has its answer; a repeated request will do the operation again, which makes nothing twice.
				log.WarnContext(r.Context(), "answer not kept", "route", c.Path(), "error", err)
			}
			return nil
		}
	}
}

// readKey reads the Idempotency-Key of a POST; "" where there is none.
func readKey(r *http.Request) (string, error) {
	key := r.Header.Get(idempotencyHeader)
	switch {
	case r.Method != http.MethodPost:
		return "", nil
	case !readable(key):
		return "", fault.New(idempotencyHeader, notReadable)
	case utf8.RuneCountInString(key) > maxKeyLen:
		return "", fault.New(idempotencyHeader, "is longer than %d characters", maxKeyLen)
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
