package httpapi

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/apidoc"
)

// operation is what the API document says of an operation and middlewares act
// by, so that there is one place that says it.
type operation struct {
	scope admin.Scope
	// query holds the names of the query parameters.
	query []string
}

// waits tells whether the operation can wait for the proxies.
func (o *operation) waits() bool { return slices.Contains(o.query, waitParam) }

// unbounded are the operations that read as long as there is something to read.
var unbounded = []string{"exportUsage", "exportLedger", "checkLedger", "checkReceipts"}

// bound is how long the operation may take in all; zero stands for no bound.
func (o *operation) bound(id string, within time.Duration) time.Duration {
	switch {
	case slices.Contains(unbounded, id):
		return 0
	case o.waits():
		return within + longestWait
	}
	return within
}

// bounded ends what waits for the database after a time.
func bounded(limit time.Duration) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		if limit == 0 {
			return next
		}
		return func(c echo.Context) error {
			ctx, cancel := context.WithTimeout(c.Request().Context(), limit)
			defer cancel()
			c.SetRequest(c.Request().WithContext(ctx))
			return next(c)
		}
	}
}

// readOperations reads the operations of an API document by their ids.
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
			if p.In == "query" {
				read.query = append(read.query, p.Name)
			}
		}
		operations[op.ID] = read
	}
	return operations, nil
}

const notReadable = "must be UTF-8 without the character U+0000"

// readable tells whether texts can be looked for in the database.
func readable(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(s string) bool { return !utf8.ValidString(s) || strings.ContainsRune(s, 0) })
}

// declared refuses parameters that cannot be read, and query parameters that the operation does not have: one
// that is misspelt would otherwise be taken for one that is not given.
func declared(op operation) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			given, err := url.ParseQuery(c.Request().URL.RawQuery)
			if err != nil {
				return validation.New("", "the query is malformed")
			}
			var invalid validation.Errors
			for name, values := range given {
				switch {
				case !readable(name) || !readable(values...):
					invalid.Add(strings.ToValidUTF8(name, "?"), notReadable)
				case !slices.Contains(op.query, name):
					invalid.Add(name, "is no parameter of this operation")
				case len(values) > 1:
					invalid.Add(name, "is given more than once")
				}
			}
			for i, value := range c.ParamValues() {
				plain, err := url.PathUnescape(value) // the router leaves some as they came
				if !readable(value) || (err == nil && !readable(plain)) {
					invalid.Add(c.ParamNames()[i], notReadable)
				}
			}
			slices.SortFunc(invalid, func(a, b validation.FieldError) int { return strings.Compare(a.Path, b.Path) })
			if invalid != nil {
				return invalid
			}
			return next(c)
		}
	}
}
