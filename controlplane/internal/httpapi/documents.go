package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/shared/platform/apidoc/apipage"
)

// servePages serves the API document as a web page, and a page for each kind of problem, so that
// problem types resolve. The pages need no token.
func servePages(e *echo.Echo, site *apipage.Site) {
	page := func(c echo.Context, text []byte) error {
		h := c.Response().Header()
		h.Set(echo.HeaderContentSecurityPolicy, apipage.Policy)
		h.Set(echo.HeaderXContentTypeOptions, "nosniff")
		h.Set(echo.HeaderReferrerPolicy, "no-referrer")
		return c.HTMLBlob(http.StatusOK, text)
	}
	whole := func(c echo.Context) error { return page(c, site.Page()) }
	e.GET("/", whole)
	e.GET("/docs", whole)

	e.GET("/problems/:code", func(c echo.Context) error {
		text := site.Problem(c.Param("code"))
		if text == nil {
			return problem.ErrNoEndpoint
		}
		return page(c, text)
	})
}
