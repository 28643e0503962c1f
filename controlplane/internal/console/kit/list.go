package kit

import (
	"net/url"
	"strings"
	"time"
)

// PageSize is the number of rows on a page of a list.
const PageSize = 50

// Pages are the links to other pages of a list, for the part "pages".
type Pages struct {
	// First is empty on the first page, Next on the last.
	First, Next string
}

// PagesOf returns the links of a list that was read with the cursor of the request. next is the cursor of the answer.
func PagesOf(r *Request, next *string) Pages {
	var p Pages
	query := r.URL.Query()
	if query.Get("cursor") != "" {
		query.Del("cursor")
		p.First = r.URL.Path + "?" + query.Encode()
	}
	if next != nil {
		query.Set("cursor", *next)
		p.Next = r.URL.Path + "?" + query.Encode()
	}
	return p
}

// Cursor returns the cursor of the request; nil on the first page.
func Cursor(r *Request) *string { return Optional(r.FormValue("cursor")) }

// Optional returns nil for an empty text.
func Optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Moment parses a time of a filter: RFC 3339, or a day or a time of day in UTC as browsers send it. It returns nil for an
// empty text.
func Moment(field, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no time is a valid filter
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return &at, nil
		}
	}
	return nil, Invalid(field, "must be a time such as 2026-01-31T14:00")
}

// Command returns a command of gwctl with those flags that have a value: Command("usage list", "--model", model).
func Command(name string, flags ...string) string {
	words := []string{"gwctl", name}
	for i := 0; i+1 < len(flags); i += 2 {
		if flags[i+1] != "" {
			words = append(words, flags[i], Quote(flags[i+1]))
		}
	}
	return strings.Join(words, " ")
}

// Quote quotes a text for the shell if it needs that.
func Quote(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+=,"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// With returns the address of the page with other values in the query; an empty value removes one. The cursor is removed.
func With(u *url.URL, pairs ...string) string {
	query := u.Query()
	query.Del("cursor")
	for i := 0; i+1 < len(pairs); i += 2 {
		query.Del(pairs[i])
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	if len(query) == 0 {
		return u.Path
	}
	return u.Path + "?" + query.Encode()
}

// Query returns the query of an address with those values that are not empty.
func Query(pairs ...string) string {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return query.Encode()
}
