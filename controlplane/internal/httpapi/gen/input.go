package gen

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/oapi-codegen/runtime"

	"modelgateway/controlplane/internal/validation"
)

// input reads the parameters and the body of a request. After the first error it reads nothing more.
type input struct {
	c   echo.Context
	err error
}

// path reads a parameter of the path.
func (in *input) path(name string, into any) {
	if in.err == nil {
		in.bound(name, runtime.BindStyledParameterWithOptions("simple", name, in.c.Param(name), into, runtime.BindStyledParameterOptions{
			ParamLocation: runtime.ParamLocationPath, Required: true, ValueIsUnescaped: in.c.Request().URL.RawPath == "",
		}))
	}
}

// query reads an optional parameter of the query.
func (in *input) query(name string, explode bool, into any) {
	if in.err == nil {
		in.bound(name, runtime.BindQueryParameterWithOptions("form", explode, false, name, in.c.QueryParams(), into,
			runtime.BindQueryParameterOptions{}))
	}
}

// header reads an optional header; without it, the pointer stays nil.
func header[T any](in *input, name string, into **T) {
	values, found := in.c.Request().Header[http.CanonicalHeaderKey(name)]
	if in.err != nil || !found {
		return
	}
	if len(values) != 1 {
		in.err = echo.NewHTTPError(http.StatusBadRequest, fmt.Sprintf("Expected one value for %s, got %d", name, len(values)))
		return
	}
	*into = new(T)
	in.bound(name, runtime.BindStyledParameterWithOptions("simple", name, values[0], *into, runtime.BindStyledParameterOptions{
		ParamLocation: runtime.ParamLocationHeader,
	}))
}

func (in *input) bound(name string, err error) {
	if err != nil {
		in.err = echo.NewHTTPError(http.StatusBadRequest, fmt.Sprintf("Invalid format for parameter %s: %s", name, err))
	}
}

// body decodes the body with the server's binder. A media type is named if the operation accepts several: a body of
// another one is left unread.
func body[T any](in *input, mediaType string, into **T) {
	if in.err != nil || !in.has(mediaType) {
		return
	}
	*into = new(T)
	in.err = in.c.Bind(*into)
}

// rawBody passes a body on as it arrives.
func (in *input) rawBody(mediaType string, into *io.Reader) {
	if in.has(mediaType) {
		*into = in.c.Request().Body
	}
}

func (in *input) has(mediaType string) bool {
	return strings.HasPrefix(in.c.Request().Header.Get(echo.HeaderContentType), mediaType)
}

// serve calls an operation and writes its response.
func serve[Request, Response any](
	in input, call *Call, request Request, operation func(context.Context, *Call, Request) (Response, error),
	write func(Response, http.ResponseWriter) error,
) error {
	if in.err != nil {
		return withOther(in, call, request, operation)
	}

	response, err := operation(in.c.Request().Context(), call, request)
	if err != nil {
		return err
	}
	if call.ETag != "" {
		in.c.Response().Header().Set("ETag", string(call.ETag))
	}
	return write(response, in.c.Response())
}

// withOther returns the error of the input. If members of the body are invalid, such as one that is not known, it also has what the
// operation finds invalid, so that a client learns all at once. The operation changes nothing: its context has ended.
func withOther[Request, Response any](
	in input, call *Call, request Request, operation func(context.Context, *Call, Request) (Response, error),
) error {
	invalid, is := validation.As(in.err)
	if !is || slices.ContainsFunc(invalid, func(f validation.FieldError) bool { return f.Path == "" }) { // not even JSON
		return in.err
	}

	ended, end := context.WithCancel(in.c.Request().Context())
	end()
	if _, err := operation(ended, call, request); err != nil {
		if more, also := validation.As(err); also {
			return validation.Merge(in.err, more)
		}
	}

	return in.err
}
