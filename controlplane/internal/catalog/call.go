package catalog

import (
	"cmp"
	"maps"
	"slices"

	"modelgateway/shared/catalogkv"
)

// Call is the address of the calls of a format on a route, which a change makes or changes.
type Call struct {
	Route  string
	Format catalogkv.Format
	// Stream is set for requests for a stream, if their address is another one.
	Stream bool
	// Before is empty for a call that there was not.
	Before, After string
}

// callKey identifies a call.
type callKey struct {
	route  string
	format catalogkv.Format
	stream bool
}

// calls adds to each change of a provider or a route the addresses of calls that it changes.
func calls(state *State, t *target, changes []Change) {
	before, after := map[callKey]string{}, map[callKey]string{}
	for _, m := range state.Models {
		addCalls(before, m.Routes, func(id string) *catalogkv.Provider {
			spec := state.Providers[id].Spec
			return &spec
		})
	}

	providers := map[string]string{}
	for _, m := range t.models {
		addCalls(after, m.routes, func(id string) *catalogkv.Provider {
			spec := t.providers[id].spec
			return &spec
		})
		for id, r := range m.routes {
			providers[id] = r.Provider
		}
	}

	place := map[string]*Change{}
	for i := range changes {
		place[changes[i].Kind+" "+changes[i].ID] = &changes[i]
	}

	for _, key := range slices.SortedFunc(maps.Keys(after), compareCalls) {
		if after[key] == before[key] {
			continue
		}
		change := place["route "+key.route]
		if change == nil {
			change = place["provider "+providers[key.route]]
		}
		if change != nil {
			change.Calls = append(change.Calls, Call{
				Route:  key.route,
				Format: key.format,
				Stream: key.stream,
				Before: before[key],
				After:  after[key],
			})
		}
	}
}

func addCalls(all map[callKey]string, routes map[string]catalogkv.Route, provider func(id string) *catalogkv.Provider) {
	for id, r := range routes {
		p := provider(r.Provider)
		for _, f := range r.Formats {
			whole, stream := p.URL(p.Target(&r, f, false)), p.URL(p.Target(&r, f, true))
			all[callKey{id, f, false}] = whole
			if stream != whole {
				all[callKey{id, f, true}] = stream
			}
		}
	}
}

func compareCalls(a, b callKey) int {
	stream := map[bool]int{true: 1}
	return cmp.Or(
		cmp.Compare(a.route, b.route),
		cmp.Compare(slices.Index(catalogkv.Formats, a.format), slices.Index(catalogkv.Formats, b.format)),
		cmp.Compare(stream[a.stream], stream[b.stream]),
	)
}
