// Package fault owns the question whether a fault is news. Loops that try
// again for as long as something is away would fill the log with one line.
package fault

// Last is the fault that was met last. Its zero value has met none. It belongs
// to one goroutine.
type Last struct{ text string }

// News takes in the outcome of an attempt, and tells whether it is a fault
// other than the last one. A success makes the next fault news.
func (l *Last) News(err error) bool {
	if err == nil {
		l.text = ""
		return false
	}
	text := err.Error()
	if text == l.text {
		return false
	}
	l.text = text
	return true
}
