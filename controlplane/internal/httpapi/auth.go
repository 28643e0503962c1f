package httpapi

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/httpapi/problem"
)

// authenticate returns the name of the principal whose token the request
// carries, or which its context has, if the principal has the scope. It becomes
// the actor of the request's audit entries.
func (p *pipeline) authenticate(c echo.Context, needed admin.Scope) (actor string, err error) {
	r := c.Request()
	principal := admin.PrincipalOf(r.Context())
	if principal == nil {
		authenticated, err := p.tokens.Authenticate(r.Context(), bearer(r), p.address(r))
		if err != nil {
			return "", err
		}
		principal = &authenticated
	}

	by := audit.By(r.Context())
	by.Name = principal.Name
	ctx := admin.WithPrincipal(audit.WithActor(r.Context(), by), principal)
	c.SetRequest(r.WithContext(admin.WithLimits(ctx, principal.Limits)))
	if !admin.Allows(principal.Scopes, needed) {
		return "", problem.Explain(problem.ErrForbidden, "the operation needs the scope %s", needed)
	}

	return principal.Name, nil
}

// bearer returns the token of the Authorization header, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
