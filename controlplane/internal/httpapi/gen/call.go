package gen

import (
	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/ident"
)

// Call carries what a handler needs of a request beside its decoded input, and
// what it reports beside the body of its response.
type Call struct {
	// OperationID is the id for whatever the request creates. Requests with the same Idempotency-Key have the same
	// OperationID, so that a repeated request creates nothing twice.
	OperationID ident.UUID
	// Actor is the name of the principal that makes the request.
	Actor string

	// ETag is set by the handler to the entity tag of the object in the response; empty if it has none.
	ETag etag.Tag
	// Changes is set by the handler to what proxies have to apply; wait=applied waits for it.
	Changes propagation.Changes
}

// RunFunc carries out a request of an operation: it checks what holds for all
// operations, calls handle with the request's Call, and completes the response.
type RunFunc func(c echo.Context, operationID string, handle func(*Call) error) error
