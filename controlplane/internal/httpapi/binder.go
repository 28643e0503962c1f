package httpapi

import (
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/httpapi/problem"
	"modelgateway/controlplane/internal/strict"
)

// binder decodes JSON bodies strictly: unknown members are errors.
type binder struct{}

func (binder) Bind(into any, c echo.Context) error {
	r := c.Request()
	if !isJSON(r.Header.Get(echo.HeaderContentType)) {
		return problem.Explain(problem.ErrMediaType, "the body must be %s", echo.MIMEApplicationJSON)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.Method == http.MethodPatch {
		return strict.Patch(body, into)
	}
	return strict.JSON(body, into)
}

// isJSON reports whether a Content-Type is JSON in UTF-8.
func isJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	charset, other := params["charset"]
	return err == nil && media == echo.MIMEApplicationJSON && (!other || strings.EqualFold(charset, "utf-8"))
}
