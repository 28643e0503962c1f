// Package policy compiles the parameter policies of models and routes, and caches them.
package policy

import (
	"slices"
	"sync"
	"sync/atomic"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/catalogkv"
)

// Cache holds the compiled parameter policies of the catalog snapshot that was used last.
type Cache struct{ current atomic.Pointer[policySet] }

// policySet holds the compiled parameter policies of one catalog snapshot.
type policySet struct {
	snapshot *catalog.Snapshot
	compiled sync.Map // policyKey to *format.Policy
}

type policyKey struct {
	model  *catalog.Model
	route  *catalog.Route
	format catalogkv.Format
}

func (p *Cache) of(snapshot *catalog.Snapshot) *policySet {
	set := p.current.Load()
	if set == nil || set.snapshot != snapshot {
		set = &policySet{snapshot: snapshot}
		p.current.Store(set)
	}
	return set
}

// OfModel returns the format's policy with the overrides of the model.
func (p *Cache) OfModel(snapshot *catalog.Snapshot, m *catalog.Model, d format.Dialect) *format.Policy {
	f := d.Format()
	overrides, ok := m.Params[f]
	if !ok {
		return d.Policy()
	}
	return p.compile(snapshot, policyKey{model: m, format: f}, d.Policy(), overrides)
}

// IsOwn reports whether a route has a policy of its own in a format: its own parameters, or a provider without service tiers.
func IsOwn(r *catalog.Route, f catalogkv.Format) bool {
	return len(r.Params[f]) > 0 || lacksTiers(r, f)
}

func lacksTiers(r *catalog.Route, f catalogkv.Format) bool {
	return slices.Contains(format.Departures[r.Provider.Kind][f].Removed, "service_tier")
}

// OfRoute returns the model's policy in a format with the overrides of the route.
func (p *Cache) OfRoute(
	snapshot *catalog.Snapshot,
	m *catalog.Model,
	r *catalog.Route,
	f catalogkv.Format,
	ofModel *format.Policy,
) *format.Policy {
	if !IsOwn(r, f) {
		return ofModel
	}
	return p.compile(snapshot, policyKey{m, r, f}, ofModel, r.Params[f])
}

func (p *Cache) compile(snapshot *catalog.Snapshot, key policyKey, base *format.Policy, overrides catalogkv.Params) *format.Policy {
	set := p.of(snapshot)
	if compiled, ok := set.compiled.Load(key); ok {
		return compiled.(*format.Policy)
	}
	compiled := base.With(overrides)
	if key.route != nil && lacksTiers(key.route, key.format) {
		compiled = compiled.WithoutServiceTiers()
	}
	set.compiled.Store(key, compiled)
	return compiled
}
