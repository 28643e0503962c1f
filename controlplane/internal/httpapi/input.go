package httpapi

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"modelgateway/controlplane/internal/strict"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
	"modelgateway/shared/money"
)

// binder reads JSON bodies strictly: an unknown member is a fault.
type binder struct{}

// Bind implements echo.Binder.
func (binder) Bind(into any, c echo.Context) error {
	r := c.Request()
	if !declares(r.Header.Get(echo.HeaderContentType), echo.MIMEApplicationJSON) {
		return explain(errMediaType, "the body must be %s", echo.MIMEApplicationJSON)
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

// declares tells whether a Content-Type is one of the media, in UTF-8.
func declares(contentType string, media ...string) bool {
	given, params, err := mime.ParseMediaType(contentType)
	charset, other := params["charset"]
	return err == nil && slices.Contains(media, given) && (!other || strings.EqualFold(charset, "utf-8"))
}

const (
	defaultLimit = 50
	maxLimit     = 500
)

// page is how much of a list is wanted, and from where.
type page struct {
	limit  int
	cursor []byte
}

// readPage reads the parameters of a list.
func readPage(limit *int, cursor *string) (page, error) {
	p := page{limit: defaultLimit}
	var invalid validation.Errors
	if limit != nil {
		if p.limit = *limit; p.limit < 1 || p.limit > maxLimit {
			invalid.Add("limit", "must be between 1 and %d", maxLimit)
		}
	}
	if cursor != nil && *cursor != "" {
		var err error
		if p.cursor, err = base64.RawURLEncoding.DecodeString(*cursor); err != nil {
			invalid.Add("cursor", "was not given by this list")
		}
	}
	return p, invalid.Err()
}

// uuid is the cursor of a list that goes by ids; zero at its beginning.
func (p *page) uuid() (ident.UUID, error) {
	var u ident.UUID
	if p.cursor == nil {
		return u, nil
	}
	if copy(u[:], p.cursor) != len(u) || len(p.cursor) != len(u) {
		return u, validation.New("cursor", "was not given by this list")
	}
	return u, nil
}

// number is the cursor of a list that goes by numbers; zero at its beginning.
func (p *page) number() (int64, error) {
	if p.cursor == nil {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(p.cursor), 10, 64)
	if err != nil {
		return 0, validation.New("cursor", "was not given by this list")
	}
	return n, nil
}

// next cuts a list that was read with one entry more than wanted, and makes
// the cursor of the page behind it; nil if this is the last.
func next[T any](p page, found []T, position func(*T) []byte) ([]T, *string) {
	if len(found) <= p.limit {
		return found, nil
	}
	found = found[:p.limit]
	cursor := base64.RawURLEncoding.EncodeToString(position(&found[p.limit-1]))
	return found, &cursor
}

// cut takes a page out of a list that is whole. Positions rise in its order, so
// that a page goes on where the last one ended whatever came or went meanwhile.
func cut[T any](limit *int, cursor *string, whole []T, position func(*T) []byte) ([]T, *string, error) {
	p, err := readPage(limit, cursor)
	if err != nil {
		return nil, nil, err
	}
	if p.cursor != nil {
		begin := slices.IndexFunc(whole, func(e T) bool { return bytes.Compare(position(&e), p.cursor) > 0 })
		if begin < 0 {
			begin = len(whole)
		}
		whole = whole[begin:]
	}
	found, more := next(p, whole, position)
	return found, more, nil
}

// all converts a list. It is never nil, so that it is written as [].
func all[T, V any](values []T, view func(*T) V) []V {
	views := make([]V, len(values))
	for i := range values {
		views[i] = view(&values[i])
	}
	return views
}

// amount reads money, nil where there is none.
func amount(path string, text *string) (*money.Nano, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // no amount is an amount that is not there
	}
	n, err := money.Parse(*text)
	if errors.Is(err, money.ErrOverflow) {
		return nil, validation.New(path, "is too large")
	}
	if err != nil {
		return nil, validation.New(path, "must be a decimal with at most nine places")
	}
	return &n, nil
}

// orEmpty is a text, or "" where there is none.
func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// present is a text, or nil for "".
func present[T ~string](text T) *string {
	if text == "" {
		return nil
	}
	s := string(text)
	return &s
}
