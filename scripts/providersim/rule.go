package providersim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Match selects requests. Empty members match everything.
type Match struct {
	Model    string `json:"model"`    // whole model name, or the part before its @
	Path     string `json:"path"`     // whole path, or a prefix followed by *
	Contains string `json:"contains"` // occurs in the body
}

// Rule applies directives to matching requests.
type Rule struct {
	ID         string `json:"id"` // given by the simulator
	Match      Match  `json:"match"`
	Directives string `json:"directives"`
	Times      int64  `json:"times"` // number of requests it applies to; 0 is all
	Used       int64  `json:"used"`  // number of requests it has applied to
}

// rules are tried in the order of their addition. The first one that matches and has uses
// left applies.
type rules struct {
	mu   sync.Mutex
	list []Rule
	next int
}

func (r *rules) add(rule Rule) (string, error) {
	if err := newDirectives(Config{}).apply(rule.Directives); err != nil {
		return "", fmt.Errorf("add rule: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	rule.ID, rule.Used = fmt.Sprintf("rule_%d", r.next), 0
	r.list = append(r.list, rule)
	return rule.ID, nil
}

func (r *rules) take(model, path string, body []byte) (Rule, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.list {
		rule := &r.list[i]
		if (rule.Times == 0 || rule.Used < rule.Times) && rule.Match.matches(model, path, body) {
			rule.Used++
			return *rule, true
		}
	}
	return Rule{}, false
}

func (r *rules) all() []Rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Rule{}, r.list...)
}

// remove removes a rule and reports whether there was one.
func (r *rules) remove(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.list)
	r.list = slices.DeleteFunc(r.list, func(rule Rule) bool { return rule.ID == id })
	return len(r.list) < before
}

func (r *rules) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = nil
}

func (m Match) matches(model, path string, body []byte) bool {
	if m.Model != "" && m.Model != model && m.Model != baseModel(model) {
		return false
	}
	if prefix, open := strings.CutSuffix(m.Path, "*"); open && !strings.HasPrefix(path, prefix) ||
		!open && m.Path != "" && m.Path != path {
		return false
	}
	return m.Contains == "" || bytes.Contains(body, []byte(m.Contains))
}

func baseModel(model string) string {
	base, _, _ := strings.Cut(model, "@")
	return base
}
