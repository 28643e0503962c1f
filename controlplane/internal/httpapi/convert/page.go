package convert

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/ident"
)

const (
	defaultLimit = 50
	maxLimit     = 500
)

// Page selects a page of a list.
type Page struct {
	// Limit is the maximum number of entries.
	Limit int
	// Cursor is the position of the last entry of the page before; nil for the first page.
	Cursor []byte
}

// ReadPage parses the parameters limit and cursor.
func ReadPage(limit *int, cursor *string) (Page, error) {
	p := Page{Limit: defaultLimit}
	var invalid validation.Errors
	if limit != nil {
		if p.Limit = *limit; p.Limit < 1 || p.Limit > maxLimit {
			invalid.Add("limit", "must be between 1 and %d", maxLimit)
		}
	}
	if cursor != nil && *cursor != "" {
		var err error
		if p.Cursor, err = base64.RawURLEncoding.DecodeString(*cursor); err != nil {
			invalid.Add("cursor", badCursor)
		}
	}
	return p, invalid.Err()
}

// ReadPageByID parses the parameters of a list that is ordered by ids, and returns the last id of the page before; zero for the
// first page.
func ReadPageByID(limit *int, cursor *string) (p Page, last ident.UUID, err error) {
	if p, err = ReadPage(limit, cursor); err != nil {
		return p, last, err
	}
	last, err = p.UUID()
	return p, last, err
}

// ReadPageByNumber is ReadPageByID for a list that is ordered by numbers.
func ReadPageByNumber(limit *int, cursor *string) (p Page, last int64, err error) {
	if p, err = ReadPage(limit, cursor); err != nil {
		return p, last, err
	}
	last, err = p.Number()
	return p, last, err
}

const badCursor = "is not a cursor of this list"

// InvalidCursor returns the error for a cursor that another list returned.
func InvalidCursor() error { return validation.New("cursor", badCursor) }

// UUID returns the cursor of a list that is ordered by ids; zero for the first page.
func (p *Page) UUID() (ident.UUID, error) {
	var u ident.UUID
	if p.Cursor == nil {
		return u, nil
	}
	if copy(u[:], p.Cursor) != len(u) || len(p.Cursor) != len(u) {
		return u, InvalidCursor()
	}
	return u, nil
}

// Number returns the cursor of a list that is ordered by numbers; zero for the first page.
func (p *Page) Number() (int64, error) {
	if p.Cursor == nil {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(p.Cursor), 10, 64)
	if err != nil {
		return 0, InvalidCursor()
	}
	return n, nil
}

// NextPage takes a list that was read with one entry more than the page's
// limit. It returns the page and the cursor of the next one, nil if this is the
// last page.
func NextPage[T any](p Page, found []T, position func(*T) []byte) ([]T, *string) {
	if len(found) <= p.Limit {
		return found, nil
	}
	found = found[:p.Limit]
	return found, CursorOf(position(&found[p.Limit-1]))
}

// CursorOf returns the cursor of the page that continues after a position.
func CursorOf(position []byte) *string {
	cursor := base64.RawURLEncoding.EncodeToString(position)
	return &cursor
}

// Paginate returns a page of a list that was read whole. Positions rise in the
// order of the list, so that a page continues after the previous one even if entries
// were added or removed in between.
func Paginate[T any](limit *int, cursor *string, whole []T, position func(*T) []byte) ([]T, *string, error) {
	p, err := ReadPage(limit, cursor)
	if err != nil {
		return nil, nil, err
	}
	if p.Cursor != nil {
		begin := slices.IndexFunc(whole, func(e T) bool { return bytes.Compare(position(&e), p.Cursor) > 0 })
		if begin < 0 {
			begin = len(whole)
		}
		whole = whole[begin:]
	}
	found, more := NextPage(p, whole, position)
	return found, more, nil
}
