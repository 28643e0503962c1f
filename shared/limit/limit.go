// Package limit owns what both planes must agree on about limits: in which window of a limit a request counts, which pool that
// window is, and to which models a limit applies. It has no clock.
//
// Each window of each limit is a pool of its own, and the id of the pool has the number of the window (Pool). So a proxy can name
// the pool before anybody has made it, and the charge of a request goes to the very pool that covered it, whenever the
// request ends. The proxy's clock chooses the window (Windows.Current). The control plane accepts a window that is
// current by its own clock or was within Tolerance, and names the right one otherwise (Series.Check): it alone decides when a window of
// the period FirstUse begins.
package limit

import (
	"slices"
	"strings"
)

// Scope is the level of a limit.
type Scope string

// The levels.
const (
	Account Scope = "account"
	Project Scope = "project"
	Key     Scope = "key"
)

// Owner says in a message to a client whose limits those of a level are: "this account", "this API key's project", "this API key".
func (s Scope) Owner() string {
	switch s {
	case Account:
		return "this account"
	case Project:
		return "this API key's project"
	case Key:
		return "this API key"
	default:
		return string(s)
	}
}

// MaxPerKey bounds the limits that apply to one request: those of its key, of the key's project, and of its account. The slots of a key
// count as one.
const MaxPerKey = 8

// Limit is a limit as proxies know it, from the record of a key.
type Limit struct {
	// ID is the number of the limit in the ids of its pools, Name its id in the API.
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	Scope  Scope  `json:"scope"`
	Window Window `json:"window"`
	// Models has the models that the limit applies to, as in CoversModel.
	Models []string `json:"models,omitempty"`
	// Newest is the newest window of a limit of the period FirstUse when the record was read. Without it, a proxy would ask for the
	// first one and be told.
	Newest Span `json:"newest,omitzero"`
}

// AppliesTo reports whether requests for a model count. Without a model, only limits for all models apply.
func (l *Limit) AppliesTo(model string) bool { return CoversModel(l.Models, model) }

// CoversModel reports whether a list of models has a model. An entry that ends with "*" stands for all ids with the text before it.
// An empty list covers all models.
func CoversModel(models []string, id string) bool {
	return len(models) == 0 || slices.ContainsFunc(models, func(covered string) bool {
		prefix, isPrefix := strings.CutSuffix(covered, "*")
		return covered == id || isPrefix && strings.HasPrefix(id, prefix)
	})
}

// The layout of the id of a window's pool. Ids of other pools are below windowPools, and all ids have at most 18 digits, as the
// decoder of events expects. They order as the numbers of the windows do.
const (
	windowPools = 1 << 58
	numberBits  = 24
	maxNumber   = 1<<numberBits - 1
)

// Pool returns the id of the pool of a window.
func Pool(limit, number int64) int64 { return windowPools | limit<<numberBits | number }

// OfPool returns the limit and the number of the window of a pool; ok is false if the pool is not that of a window.
func OfPool(pool int64) (limit, number int64, ok bool) {
	if pool < windowPools || pool >= 2*windowPools {
		return 0, 0, false
	}
	return (pool - windowPools) >> numberBits, pool & maxNumber, true
}
