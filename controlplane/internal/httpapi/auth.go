package httpapi

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/admin"
	"modelgateway/controlplane/internal/audit"
)

// authenticate lets a request pass whose token has a scope, and makes the
// token the actor of what the request changes.
func authenticate(tokens *admin.Service, needed admin.Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			who, err := tokens.Authenticate(r.Context(), bearer(r), address(r))
			if err != nil {
				return err
			}
			actor := audit.By(r.Context())
			actor.Name = who.Name
			c.SetRequest(r.WithContext(audit.WithActor(r.Context(), actor)))
			if !admin.Allows(who.Scopes, needed) {
				return explain(errForbidden, "the operation needs the scope %s", needed)
			}
			return next(c)
		}
	}
}

// address is where a request comes from: the other end of the connection, since
// anybody can write any address into a header.
func address(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr()
}

// bearer returns the token of the Authorization header, or nothing.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
