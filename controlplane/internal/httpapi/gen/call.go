package gen

import (
	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/etag"
	"modelgateway/controlplane/internal/propagation"
	"modelgateway/shared/ident"
)

// Call contains the properties of a request that are not in its decoded input, and
// the results of a handler that are not in the body of its response.
type Call struct {
	// OperationID is the id of the object that the request creates. Requests with the same Idempotency-Key have the same
	// OperationID, so that a repeated request creates nothing twice.
	OperationID ident.UUID
	// Actor is the name of the principal that makes the request.
	Actor string

	// ETag is set by the handler to the entity tag of the object in the response; empty if it has none.
	ETag etag.Tag
	// Changes is set by the handler to the changes that proxies have to apply; wait=applied waits for them.
	Changes propagation.Changes
}

// RunFunc executes a request of an operation: it makes the checks that all
// operations share, calls handle with the request's Call, and completes the
// response.
type RunFunc func(c echo.Context, operationID string, handle func(*Call) error) error
