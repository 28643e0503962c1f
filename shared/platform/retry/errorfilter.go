package retry

// ErrorFilter remembers the error of the last attempt of a loop that retries. Without it, the loop would log the same line
// with every attempt while a dependency is unavailable. The zero value is ready. One goroutine uses it.
type ErrorFilter struct{ last string }

// IsNew takes the result of an attempt and reports whether it is an error that differs from that of the attempt
// before. A success resets the filter.
func (f *ErrorFilter) IsNew(err error) bool {
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
