package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
)

// readScopes takes the scope of every operation, by its id, from the API
// document, so that there is one place that says who may do what.
func readScopes(document []byte) (map[string]admin.Scope, error) {
	var doc struct {
		Paths map[string]map[string]yaml.Node `yaml:"paths"`
	}
	if err := yaml.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("httpapi: read the API document: %w", err)
	}
	scopes := map[string]admin.Scope{}
	for path, item := range doc.Paths {
		for method, node := range item {
			if method == "parameters" {
				continue
			}
			var op struct {
				ID       string                     `yaml:"operationId"` //nolint:tagliatelle // OpenAPI's name
				Security []map[string][]admin.Scope `yaml:"security"`
			}
			if err := node.Decode(&op); err != nil {
				return nil, fmt.Errorf("httpapi: read the API document: %s %s: %w", method, path, err)
			}
			if len(op.Security) != 1 || len(op.Security[0]["adminToken"]) != 1 {
				return nil, fmt.Errorf("httpapi: the API document names no scope for %s", op.ID)
			}
			scopes[op.ID] = op.Security[0]["adminToken"][0]
		}
	}
	return scopes, nil
}

// authenticate lets a request pass whose token has a scope, and makes the
// token the actor of what the request changes.
func authenticate(tokens *admin.Service, needed admin.Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			who, err := tokens.Authenticate(r.Context(), bearer(r))
			if err != nil {
				return err
			}
			actor := audit.By(r.Context())
			actor.Name = who.Name
			c.SetRequest(r.WithContext(audit.WithActor(r.Context(), actor)))
			if !admin.Allows(who.Scopes, needed) {
				return errForbidden
			}
			return next(c)
		}
	}
}

// bearer returns the token of the Authorization header, or nothing.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
