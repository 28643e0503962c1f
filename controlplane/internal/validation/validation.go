// Package validation describes why an input is rejected: every invalid field
// with the reason. It contains no rules and does not depend on HTTP.
package validation

import (
	"errors"
	"fmt"
	"strings"
)

// FieldError describes one invalid field of an input.
type FieldError struct {
	// Path is the place in the input, such as "models[3].price.input"; empty means the whole input.
	Path string
	// Detail is the predicate of a sentence whose subject is Path, such as "must be positive".
	Detail string
}

// String returns "path: detail".
func (f FieldError) String() string {
	if f.Path == "" {
		return f.Detail
	}
	return f.Path + ": " + f.Detail
}

// Errors collects the field errors of one input. Return it as an error with
// Err, which turns an empty list into nil.
type Errors []FieldError //nolint:recvcheck // a list that can be an error; only Add changes it

// Add appends a field error.
func (e *Errors) Add(path, format string, args ...any) {
	*e = append(*e, FieldError{path, fmt.Sprintf(format, args...)})
}

// Err returns the list as an error, or nil if it is empty.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Error joins the field errors with semicolons.
func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, f := range e {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

// New returns an error with a single field error.
func New(path, format string, args ...any) error {
	return Errors{{path, fmt.Sprintf(format, args...)}}
}

// Merge joins the results of several checks of one input. If several checks
// report the same path, only the first report is kept, since the later ones
// are often its consequences. An error that is not about the input is returned
// alone.
func Merge(errs ...error) error {
	var all Errors
	reported := map[string]bool{}
	for _, err := range errs {
		if err == nil {
			continue
		}
		found, ok := As(err)
		if !ok {
			return err
		}
		for _, f := range found {
			if !reported[f.Path] {
				all = append(all, f)
			}
		}
		for _, f := range found {
			reported[f.Path] = true
		}
	}

	return all.Err()
}

// As returns the field errors that err wraps, and whether there are any.
func As(err error) (Errors, bool) {
	var e Errors
	ok := errors.As(err, &e)
	return e, ok
}

// Member appends the name of a member to a path; either may be empty.
func Member(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// Index appends the index of an element to a path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
