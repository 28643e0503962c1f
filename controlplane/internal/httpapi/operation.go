package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/platform/apidoc"
)

// operation holds the properties of an operation that the server reads from the
// API document.
type operation struct {
	scope admin.Scope
	// query holds the names of the query parameters.
	query []string
	// once reports whether the operation accepts an Idempotency-Key.
	once bool
}

// audited are the operations that disclose or cost something and change nothing, with their actions
// in the audit log.
var audited = map[string]string{"exportUsage": "usage.export", "exportLedger": "ledger.export", "checkProvider": "provider.check"}

// replayed are the operations whose stored responses contain a secret, with the actions of a replay
// in the audit log.
var replayed = map[string]string{ //nolint:gosec // G101: names of operations, not secrets
	"createKey": "key.create_replayed", "rotateKey": "key.rotate_replayed", "createToken": "token.create_replayed",
	"createWebhook": "webhook.create_replayed", "rotateWebhookSecret": "webhook.rotate_secret_replayed",
}

// waits reports whether the operation accepts wait=applied.
func (o *operation) waits() bool { return slices.Contains(o.query, waitParam) }

// unlimited are the operations whose duration grows with the stored data, and those that last until somebody ends them.
var unlimited = []string{
	"exportUsage", "exportLedger", "checkLedger", "checkReceipts", "previewPrices", "streamTraffic", "tailRequests", "checkProvider",
	"importBill", "getBillDifference",
}

// timeLimit returns how long the operation may take; zero means no limit.
func (o *operation) timeLimit(id string, limit time.Duration) time.Duration {
	switch {
	case slices.Contains(unlimited, id):
		return 0
	case o.waits():
		return limit + maxWait
	}
	return limit
}

// readOperations returns the operations of an API document by their ids.
func readOperations(document []byte) (map[string]operation, error) {
	doc, err := apidoc.Parse(document)
	if err != nil {
		return nil, fmt.Errorf("httpapi: read the API document: %w", err)
	}

	operations := map[string]operation{}
	for _, op := range doc.Operations {
		read := operation{scope: admin.Scope(op.Scope)}
		if !admin.Allows([]admin.Scope{admin.Operator}, read.scope) {
			return nil, fmt.Errorf("httpapi: the API document names no scope for %s", op.ID)
		}
		for _, p := range op.Params {
			switch {
			case p.In == "query":
				read.query = append(read.query, p.Name)
			case p.In == "header" && p.Name == idempotencyHeader:
				read.once = true
			}
		}
		operations[op.ID] = read
	}

	return operations, nil
}

// checkParams rejects parameters that cannot be stored, and query parameters
// that the operation does not have: a misspelt one would otherwise be ignored.
func (o *operation) checkParams(c echo.Context) error {
	given, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return validation.New("", "the query is malformed")
	}

	var invalid validation.Errors
	for name, values := range given {
		switch {
		case !convert.Storable(name) || !convert.Storable(values...):
			invalid.Add(strings.ToValidUTF8(name, "?"), convert.NotStorable)
		case !slices.Contains(o.query, name):
			invalid.Add(name, "is not a parameter of this operation")
		case len(values) > 1:
			invalid.Add(name, "is given more than once")
		}
	}

	for i, value := range c.ParamValues() {
		plain, err := url.PathUnescape(value) // the router leaves some parameters escaped
		if !convert.Storable(value) || (err == nil && !convert.Storable(plain)) {
			invalid.Add(c.ParamNames()[i], convert.NotStorable)
		}
	}

	slices.SortFunc(invalid, func(a, b validation.FieldError) int { return strings.Compare(a.Path, b.Path) })
	return invalid.Err()
}
