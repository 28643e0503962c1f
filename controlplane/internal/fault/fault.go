// Package fault owns how a refused input is described: every place that is
// wrong, and why. It knows neither HTTP nor any rule.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// Fault is one thing wrong with an input.
type Fault struct {
	// Path says where, such as "models[3].price.input"; empty means the whole input.
	Path string
	// Detail says what is wrong, as the end of a sentence about Path.
	Detail string
}

// String is the path and the detail.
func (f Fault) String() string {
	if f.Path == "" {
		return f.Detail
	}
	return f.Path + ": " + f.Detail
}

// List is an input's faults. As an error it is never empty: use Err.
type List []Fault //nolint:errname,recvcheck // a list that can be an error; only Add changes it

// Add notes a fault.
func (l *List) Add(path, format string, args ...any) {
	*l = append(*l, Fault{path, fmt.Sprintf(format, args...)})
}

// Err is the list as an error, or nil if it is empty.
func (l List) Err() error {
	if len(l) == 0 {
		return nil
	}
	return l
}

// Error joins all faults.
func (l List) Error() string {
	texts := make([]string, len(l))
	for i, f := range l {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

// New is the error of a single fault.
func New(path, format string, args ...any) error {
	return List{{path, fmt.Sprintf(format, args...)}}
}

// Merge joins what several looks at one input have found. Of a path the first
// look counts, since what a later one finds may only follow from it. An error
// that is no list stands alone.
func Merge(errs ...error) error {
	var all List
	told := map[string]bool{}
	for _, err := range errs {
		if err == nil {
			continue
		}
		found, ok := Of(err)
		if !ok {
			return err
		}
		for _, f := range found {
			if !told[f.Path] {
				all = append(all, f)
			}
		}
		for _, f := range found {
			told[f.Path] = true
		}
	}
	return all.Err()
}

// Of returns the faults that an error holds, if it is about an input.
func Of(err error) (List, bool) {
	var l List
	ok := errors.As(err, &l)
	return l, ok
}

// Join puts a member's name behind a path; either may be empty.
func Join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// Index puts an index behind a path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
