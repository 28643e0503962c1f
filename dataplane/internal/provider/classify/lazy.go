package classify

import (
	"regexp"
	"sync"
)

// expression is a regular expression that is compiled when it is first used. All of them together take 2 MB, and a proxy
// whose providers return no errors needs none.
type expression struct {
	source   string
	once     sync.Once
	compiled *regexp.Regexp
}

// expressions has all expressions of the package, so that a test can compile them.
var expressions []*expression

// lazily returns an expression of valid syntax. It is called for variables of the package only.
func lazily(source string) *expression {
	e := &expression{source: source}
	expressions = append(expressions, e)
	return e
}

// get returns the compiled expression.
func (e *expression) get() *regexp.Regexp {
	e.once.Do(func() { e.compiled = regexp.MustCompile(e.source) })
	return e.compiled
}
