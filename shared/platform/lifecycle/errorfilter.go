// Package logdedup suppresses repeated errors in the log. A loop that retries while a dependency is down would
// otherwise log the same line with every attempt.
package logdedup

// Filter remembers the error of the last attempt. The zero value is ready. One goroutine uses it.
type Filter struct{ last string }

// IsNew takes the result of an attempt and reports whether it is an error that differs from that of the attempt
// before. A success resets the filter.
func (f *Filter) IsNew(err error) bool {
	if err == nil {
		f.last = ""
		return false
	}
	text := err.Error()
	if text == f.last {
		return false
	}
	f.last = text
	return true
}
