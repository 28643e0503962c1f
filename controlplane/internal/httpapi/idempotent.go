package httpapi

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/controlplane/internal/validation"
)

const (
	idempotencyHeader = "Idempotency-Key"
	// replayedHeader marks a stored response.
	replayedHeader = "Idempotent-Replayed"
	maxKeyLen      = 200
)

// once makes a POST with an Idempotency-Key idempotent. The response of a
// success is stored and replayed. A failure is not stored, so a retry executes the
// request again; neither is a 202, after which a retry waits again. An invalid
// request does not use up its key.
func (p *pipeline) once(c echo.Context, operationID string, call *gen.Call, handle func(*gen.Call) error) error {
	key, err := readKey(c.Request())
	if err != nil {
		return err
	}
	if key == "" {
		return handle(call)
	}

	attempt, err := p.begin(c, key)
	if err != nil {
		return err
	}
	if attempt.Before != nil {
		return p.replay(c, operationID, attempt.Before)
	}

	record := &recorder{ResponseWriter: c.Response().Writer}
	c.Response().Writer = record
	call.OperationID = attempt.Operation
	if err := handle(call); err != nil {
		p.releaseKey(c, attempt, err)
		return err
	}

	p.storeResponse(c, attempt, record.body.Bytes())
	return nil
}

// replay writes the stored response of an earlier request, after its audit entry if it has a secret.
func (p *pipeline) replay(c echo.Context, operationID string, before *idempotency.Response) error {
	if action := replayed[operationID]; action != "" {
		if err := p.audit.Record(c.Request().Context(), action, auditObject(c)); err != nil {
			return err
		}
	}
	c.Response().Header().Set(replayedHeader, "true")
	if before.ETag != "" {
		c.Response().Header().Set(etagHeader, before.ETag)
	}
	if err := c.Blob(before.Status, before.ContentType, before.Body); err != nil {
		return fmt.Errorf("httpapi: write a stored response: %w", err)
	}
	return nil
}

// begin binds the request to its key.
func (p *pipeline) begin(c echo.Context, key string) (idempotency.Attempt, error) {
	r := c.Request()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return idempotency.Attempt{}, err
	}

	attempt, err := p.idempotency.Begin(r.Context(), idempotency.Request{
		Actor:    audit.By(r.Context()).Name,
		Key:      key,
		Method:   r.Method,
		Path:     r.URL.Path,
		BodyHash: sha256.Sum256(body),
	})
	if err != nil {
		return idempotency.Attempt{}, err
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	return attempt, nil
}

// releaseKey releases the key of an invalid request.
func (p *pipeline) releaseKey(c echo.Context, attempt idempotency.Attempt, err error) {
	if of, _ := problem.Classify(err); of.Status != http.StatusBadRequest {
		return
	}
	if err := p.idempotency.Release(c.Request().Context(), attempt); err != nil {
		p.log.WarnContext(
			c.Request().Context(),
			"releasing the idempotency key of an invalid request failed",
			"route",
			c.Path(),
			"error",
			err,
		)
	}
}

// storeResponse stores the response of a success.
func (p *pipeline) storeResponse(c echo.Context, attempt idempotency.Attempt, body []byte) {
	status, h := c.Response().Status, c.Response().Header()
	if status < http.StatusOK || status >= http.StatusMultipleChoices || status == http.StatusAccepted {
		return
	}
	response := idempotency.Response{
		Status:      status,
		ContentType: h.Get(echo.HeaderContentType),
		ETag:        h.Get(etagHeader),
		Body:        body,
	}
	if err := p.idempotency.Finish(c.Request().Context(), attempt, response); err != nil {
		// The client has its response. A repeated request executes the operation again, which creates nothing twice.
		p.log.WarnContext(c.Request().Context(), "storing an idempotent response failed", "route", c.Path(), "error", err)
	}
}

// readKey returns the Idempotency-Key of a POST; "" if there is none.
func readKey(r *http.Request) (string, error) {
	key := r.Header.Get(idempotencyHeader)
	switch {
	case r.Method != http.MethodPost:
		return "", nil
	case !convert.Storable(key):
		return "", validation.New(idempotencyHeader, convert.NotStorable)
	case utf8.RuneCountInString(key) > maxKeyLen:
		return "", validation.New(idempotencyHeader, "is longer than %d characters", maxKeyLen)
	}
	return key, nil
}

// recorder copies the body of a response.
type recorder struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.body.Write(b)
	return r.ResponseWriter.Write(b)
}

// Unwrap is used by http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
