package httpapi

import (
	"net"
	"net/http"
	"net/netip"
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
		authenticated, err := p.tokens.Authenticate(r.Context(), bearer(r), address(c))
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

// addressReader returns a function that reads the client's address from a request. Behind a
// trusted proxy that is the last address of X-Forwarded-For that no trusted proxy has; the header
// of anybody else is ignored.
func addressReader(trusted []netip.Prefix) echo.IPExtractor {
	if len(trusted) == 0 {
		return echo.ExtractIPDirect()
	}
	options := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, p := range trusted {
		options = append(options, echo.TrustIPRange(&net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}))
	}
	return echo.ExtractIPFromXFFHeader(options...)
}

// AddressReader returns a function that reads the client's address from a request as the admin API does. The zero
// address means that it is not known.
func AddressReader(trusted []netip.Prefix) func(*http.Request) netip.Addr {
	read := addressReader(trusted)
	return func(r *http.Request) netip.Addr { return parseAddress(read(r)) }
}

// address returns the client's address; the zero address if it is not known.
func address(c echo.Context) netip.Addr { return parseAddress(c.RealIP()) }

func parseAddress(text string) netip.Addr {
	from, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return from
}

// bearer returns the token of the Authorization header, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
