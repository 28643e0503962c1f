package httpapi

import (
	"sync"
	"sync/atomic"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/format"
	contract "modelgateway/shared/catalog"
)

// policies keeps the compiled parameter policies of one catalog snapshot.
type policies struct{ current atomic.Pointer[policySet] }

type policySet struct {
	snapshot *catalog.Snapshot
	compiled sync.Map // policyKey to *format.Policy
}

type policyKey struct {
	model  *catalog.Model
	route  *catalog.Route
	format contract.Format
}

func (p *policies) of(snapshot *catalog.Snapshot) *policySet {
	set := p.current.Load()
	if set == nil || set.snapshot != snapshot {
		set = &policySet{snapshot: snapshot}
		p.current.Store(set)
	}
	return set
}

// ofModel is the format's policy with the overrides of the model.
func (p *policies) ofModel(j *job) *format.Policy {
	f := j.dialect.Format()
	overrides, ok := j.model.Params[f]
	if !ok {
		return j.dialect.Policy()
	}
	return p.compile(j.snapshot, policyKey{model: j.model, format: f}, j.dialect.Policy(), overrides)
}

// ofRoute is the policy of the model with the overrides of the route.
func (p *policies) ofRoute(j *job, r *catalog.Route) *format.Policy {
	f := j.dialect.Format()
	overrides := r.Params[f]
	if len(overrides) == 0 {
		return j.policy
	}
	return p.compile(j.snapshot, policyKey{j.model, r, f}, j.policy, overrides)
}

func (p *policies) compile(snapshot *catalog.Snapshot, key policyKey, base *format.Policy, overrides contract.Params) *format.Policy {
	set := p.of(snapshot)
	if compiled, ok := set.compiled.Load(key); ok {
		return compiled.(*format.Policy)
	}
	compiled := base.With(overrides)
	set.compiled.Store(key, compiled)
	return compiled
}
