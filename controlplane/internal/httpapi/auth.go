package httpapi

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
	"modelgateway/controlplane/internal/httpapi/problem"
)

// authenticate returns the name of the principal whose token the request
// carries, if the token has the scope. It becomes the actor of the request's
// audit entries.
func (p *pipeline) authenticate(c echo.Context, needed admin.Scope) (actor string, err error) {
	r := c.Request()
	principal, err := p.tokens.Authenticate(r.Context(), bearer(r), address(r))
	if err != nil {
		return "", err
	}
	by := audit.By(r.Context())
	by.Name = principal.Name
	c.SetRequest(r.WithContext(audit.WithActor(r.Context(), by)))
	if !admin.Allows(principal.Scopes, needed) {
		return "", problem.Explain(problem.ErrForbidden, "the operation needs the scope %s", needed)
	}
	return principal.Name, nil
}

// address returns the address of the peer. Headers such as X-Forwarded-For are
// ignored, since anybody can set them.
func address(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr()
}

// bearer returns the token of the Authorization header, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
