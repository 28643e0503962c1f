// Package convert translates between the types of the admin API and those of
// the domain packages: optional values, amounts, days and filters.
package convert

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/project"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/money"
)

// All converts the elements of a list. The result is never nil, so that it is
// encoded as [].
func All[T, V any](values []T, view func(*T) V) []V {
	views := make([]V, len(values))
	for i := range values {
		views[i] = view(&values[i])
	}
	return views
}

// Amount parses an amount of money; nil stays nil.
func Amount(path string, text *string) (*money.Nano, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // an absent amount is valid
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

// Text returns the text, or "" for nil.
func Text(text *string) string { return Value(text) }

// Value returns the value that p points to, or the zero value for nil.
func Value[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// Optional returns a pointer to the text, or nil for "".
func Optional[T ~string](text T) *string {
	if text == "" {
		return nil
	}
	s := string(text)
	return &s
}

// OptionalTime returns a pointer to the time, or nil for the zero time.
func OptionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Seconds returns seconds as a duration; -1 if there is no such duration, which callers refuse as any that is out of range.
func Seconds(n int64) time.Duration {
	if n < 0 || n > int64(math.MaxInt64/time.Second) {
		return -1
	}
	return time.Duration(n) * time.Second
}

// ReadDay parses a UTC day; nil gives the zero time.
func ReadDay(invalid *validation.Errors, path string, text *gen.Day) time.Time {
	if text == nil {
		return time.Time{}
	}
	day, err := time.Parse(time.DateOnly, *text)
	if err != nil || day.Year() < 1 {
		invalid.Add(path, "must be a day such as 2026-10-01")
	}
	return day
}

// Day formats a UTC day.
func Day(day time.Time) gen.Day { return day.Format(time.DateOnly) }

// CheckTimeRange rejects a range that ends before it begins; a zero time means no
// bound.
func CheckTimeRange(invalid *validation.Errors, from, to time.Time) {
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		invalid.Add("to", "must not be before from")
	}
}

// ReadOwner parses the filters account_id and key_id; nil gives the zero id.
func ReadOwner(invalid *validation.Errors, accountID, keyID *string) (a account.ID, k key.ID) {
	var err error
	if accountID != nil {
		if a, err = account.ParseID(*accountID); err != nil {
			invalid.Add("account_id", "is not the id of an account")
		}
	}
	if keyID != nil {
		if k, err = key.ParseID(*keyID); err != nil {
			invalid.Add("key_id", "is not the id of a key")
		}
	}
	return a, k
}

// ReadProject parses the filter project_id; nil gives the zero id.
func ReadProject(invalid *validation.Errors, text *string) (id project.ID) {
	if text == nil {
		return id
	}
	id, err := project.ParseID(*text)
	if err != nil {
		invalid.Add("project_id", "is not the id of a project")
	}
	return id
}

// ReadProjectOrNone is like ReadProject. The text "none" of a filter stands for what is in no project of an account.
func ReadProjectOrNone(invalid *validation.Errors, text *string, of account.ID) project.ID {
	if text == nil || *text != project.NoneText {
		return ReadProject(invalid, text)
	}
	if of == (account.ID{}) {
		invalid.Add("project_id", "can be none only beside account_id")
	}
	return project.None
}

// NotStorable is the detail of a field error for text that is not Storable.
const NotStorable = "must be UTF-8 without the character U+0000"

// Storable reports whether Postgres can store all the texts and compare with them.
func Storable(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(s string) bool { return !utf8.ValidString(s) || strings.ContainsRune(s, 0) })
}
