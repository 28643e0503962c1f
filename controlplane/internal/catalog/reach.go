package catalog

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"modelgateway/controlplane/internal/account"
	"modelgateway/shared/money"
)

const (
	// reachSpan is the period whose usage counts as recent.
	reachSpan = 30 * 24 * time.Hour
	// maxTraffic bounds the accounts that are listed.
	maxTraffic = 100
)

// Reach describes who is affected by a change.
type Reach struct {
	// Models are the affected models, sorted.
	Models []string
	// Public reports whether one of them is open to every account, before or after the change.
	Public bool
	// Granted is the number of accounts with a grant of one of them, Active the number that used one recently.
	Granted int
	Active  int64
}

// Traffic is the recent use of some models by an account.
type Traffic struct {
	Account  account.ID
	Name     string
	Models   []string
	Requests int64
	Cost     money.Nano
}

// Traffic returns the accounts that recently used affected models, highest cost first. The changes
// are those of a dry run.
func (s *Service) Traffic(ctx context.Context, changes []Change) ([]Traffic, error) {
	models := affectedModels(changes)
	if len(models) == 0 {
		return nil, nil
	}
	return s.cfg.Store.Traffic(ctx, models, time.Now().Add(-reachSpan), maxTraffic)
}

// affectedModels returns the models that are affected by any of the changes.
func affectedModels(changes []Change) []string {
	models := map[string]bool{}
	for i := range changes {
		if changes[i].Reach == nil {
			continue
		}
		for _, model := range changes[i].Reach.Models {
			models[model] = true
		}
	}
	return slices.Sorted(maps.Keys(models))
}

// reach computes the Reach of each change.
func (s *Service) reach(ctx context.Context, state *State, t *target, changes []Change) error {
	for i := range changes {
		models := modelsOf(&changes[i], state, t)
		if models == nil {
			continue
		}
		changes[i].Reach = &Reach{Models: models, Public: isPublic(models, state, t), Granted: granted(models, state)}
	}

	all := affectedModels(changes)
	if len(all) == 0 {
		return nil
	}

	since := time.Now().Add(-reachSpan)
	byModel, _, err := s.cfg.Store.Active(ctx, all, since)
	if err != nil {
		return err
	}

	for i := range changes {
		switch r := changes[i].Reach; {
		case r == nil:
		case len(r.Models) == 1:
			r.Active = byModel[r.Models[0]]
		case len(r.Models) > 1: // an account may have used several models, so their sum could be too high
			if _, r.Active, err = s.cfg.Store.Active(ctx, r.Models, since); err != nil {
				return err
			}
		}
	}

	return nil
}

// modelsOf returns the models that a change affects, sorted; nil if it does not affect models.
func modelsOf(c *Change, state *State, t *target) []string {
	switch c.Kind {
	case "model", "price":
		return []string{c.ID}
	case "route", providerPriceKind:
		return users(state, t, func(id, _ string) bool { return id == c.ID })
	case "provider":
		return users(state, t, func(_, provider string) bool { return provider == c.ID })
	case "credential":
		provider, _, _ := strings.Cut(c.ID, "/")
		return users(state, t, func(_, of string) bool { return of == provider })
	default:
		return nil
	}
}

// users returns the models that have a matching route before or after the change.
func users(state *State, t *target, fits func(id, provider string) bool) []string {
	models := map[string]bool{}
	for model, m := range state.Models {
		for id, route := range m.Routes {
			if fits(id, route.Provider) {
				models[model] = true
			}
		}
	}

	for model, m := range t.models {
		for id, route := range m.routes {
			if fits(id, route.Provider) {
				models[model] = true
			}
		}
	}

	return slices.Sorted(maps.Keys(models))
}

func isPublic(models []string, state *State, t *target) bool {
	return slices.ContainsFunc(models, func(model string) bool {
		return state.Models[model].Spec.Public || t.models[model].spec.Public
	})
}

func granted(models []string, state *State) int {
	accounts := 0
	for _, granted := range state.Grants {
		if slices.ContainsFunc(granted, func(model string) bool { return slices.Contains(models, model) }) {
			accounts++
		}
	}
	return accounts
}
