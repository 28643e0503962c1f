package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/idempotency"
	"modelgateway/shared/ident"
)

// pipeline executes the steps that all operations share. It creates the Call that
// every handler needs, so no operation can be served without it.
type pipeline struct {
	operations  map[string]operation
	tokens      *admin.Service
	address     func(*http.Request) netip.Addr
	applied     *fleet.Waiter
	audit       audit.Store
	idempotency *idempotency.Service
	log         *slog.Logger
	// timeLimit is Config.ResponseTimeout.
	timeLimit time.Duration
}

// run implements gen.RunFunc. The steps are, from outside to inside: the time
// limit, authentication, the check of the parameters, wait=applied, and the
// idempotency key. A replayed response waits for the proxies as well.
func (p *pipeline) run(c echo.Context, operationID string, handle func(*gen.Call) error) error {
	op, known := p.operations[operationID]
	if !known {
		return fmt.Errorf("httpapi: the API document has no operation %s", operationID)
	}

	if limit := op.timeLimit(operationID, p.timeLimit); limit > 0 {
		outer := c.Request().Context()
		ctx, cancel := context.WithTimeout(outer, limit)
		defer func() {
			// The error handler would take the end of this context for the client's and log nothing.
			c.SetRequest(c.Request().WithContext(audit.WithActor(outer, audit.By(c.Request().Context()))))
			cancel()
		}()
		c.SetRequest(c.Request().WithContext(ctx))
	}

	actor, err := p.authenticate(c, op.scope)
	if err != nil {
		return err
	}
	if err := op.checkParams(c); err != nil {
		return err
	}

	call := &gen.Call{OperationID: ident.New(), Actor: actor}
	if action := audited[operationID]; action != "" {
		if err := p.audit.Record(c.Request().Context(), action, auditObject(c)); err != nil {
			return err
		}
	}

	once := func() error {
		if !op.once {
			return handle(call)
		}
		return p.once(c, operationID, call, handle)
	}
	if !op.waits() {
		return once()
	}

	return p.waitApplied(c, call, once)
}

// auditObject returns the object of an entry in the audit log: the account of the query, or else the
// path.
func auditObject(c echo.Context) string {
	if id := c.QueryParam("account_id"); id != "" {
		return id
	}
	return c.Request().URL.Path
}
