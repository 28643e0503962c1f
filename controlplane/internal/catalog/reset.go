package catalog

import (
	"cmp"
	"context"
	"slices"
)

// ResetRoute closes the circuit breaker of a route on every proxy. It returns the catalog revision that includes the
// reset.
func (s *Service) ResetRoute(ctx context.Context, id string) (int64, error) {
	applied, err := s.apply(ctx, func(state *State) (*Plan, error) {
		for model := range state.Models {
			route, known := state.Models[model].Routes[id]
			if !known {
				continue
			}
			route.Resets++
			p := &Plan{Routes: []ModelRoute{{model, route}}}
			p.note(Reset, "route", id, nil, nil)
			return p, nil
		}
		return nil, ErrRouteNotFound
	})
	if err != nil {
		return 0, err
	}

	return applied.After.Rev, nil
}

// State returns the catalog as it is stored.
func (s *Service) State(ctx context.Context) (*State, error) { return s.cfg.Store.Load(ctx) }

// Routes returns all routes, by model and id.
func (s *Service) Routes(ctx context.Context) ([]ModelRoute, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return nil, err
	}
	var all []ModelRoute
	for model := range state.Models {
		for _, route := range state.Models[model].Routes {
			all = append(all, ModelRoute{model, route})
		}
	}
	slices.SortFunc(all, func(a, b ModelRoute) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Route.Priority, b.Route.Priority), cmp.Compare(a.Route.ID, b.Route.ID))
	})
	return all, nil
}
