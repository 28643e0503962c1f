package catalog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
)

// ErrProviderNotFound is returned for a provider that does not exist.
var ErrProviderNotFound = errors.New("catalog: no such provider")

// Scope is the kind of object that is under maintenance.
type Scope string

// The scopes. The whole system has no id.
const (
	WholeSystem Scope = "system"
	OneModel    Scope = "model"
	OneProvider Scope = "provider"
)

// MaintenanceEntry is the maintenance of an object.
type MaintenanceEntry struct {
	Scope Scope
	// ID is the id of the model or provider.
	ID string
	catalogkv.Maintenance
}

const (
	// maxMessage bounds the message to clients, in characters.
	maxMessage = 500
	// maxMaintenance bounds the duration, to catch typing errors.
	maxMaintenance = 366 * 24 * time.Hour
)

// Maintain starts the maintenance of an object, or ends it if m is nil. It is idempotent and
// returns the catalog revision that includes the change.
func (s *Service) Maintain(ctx context.Context, scope Scope, id string, m *catalogkv.Maintenance) (int64, error) {
	if m != nil {
		if err := checkMaintenance(m, time.Now()); err != nil {
			return 0, err
		}
	}
	applied, err := s.apply(ctx, func(state *State) (*Plan, error) { return planMaintenance(state, scope, id, m) })
	if err != nil {
		return 0, err
	}
	return applied.After.Rev, nil
}

func checkMaintenance(m *catalogkv.Maintenance, now time.Time) error {
	var invalid validation.Errors
	if utf8.RuneCountInString(m.Message) > maxMessage {
		invalid.Add("message", "must have at most %d characters", maxMessage)
	}
	if strings.ContainsFunc(m.Message, unicode.IsControl) {
		invalid.Add("message", "must not have control characters")
	}
	if until := time.Unix(m.UntilUnix, 0); m.UntilUnix != 0 && (!until.After(now) || until.After(now.Add(maxMaintenance))) {
		invalid.Add("until", "must be in the future, at most a year from now")
	}
	return invalid.Err()
}

// planMaintenance plans the change of the maintenance of one object.
func planMaintenance(state *State, scope Scope, id string, m *catalogkv.Maintenance) (*Plan, error) {
	p := &Plan{}
	var before *catalogkv.Maintenance
	switch scope {
	case OneModel:
		model, known := state.Models[id]
		if !known {
			return nil, ErrModelNotFound
		}
		before, model.Spec.Maintenance = model.Spec.Maintenance, m
		p.Models = []catalogkv.Model{model.Spec}
	case OneProvider:
		provider, known := state.Providers[id]
		if !known {
			return nil, ErrProviderNotFound
		}
		before, provider.Spec.Maintenance = provider.Spec.Maintenance, m
		p.Providers = []catalogkv.Provider{provider.Spec}
	case WholeSystem:
		settings := state.Settings
		before, settings.Maintenance = settings.Maintenance, m
		settings.Currency = state.Currency()
		p.Settings = &settings
	}

	if same(before, m) {
		return &Plan{}, nil
	}

	object := strings.TrimSpace(string(scope) + " " + id)
	switch {
	case before == nil:
		p.note(Create, "maintenance", object, nil, m)
	case m == nil:
		p.note(Remove, "maintenance", object, before, nil)
	default:
		p.note(Update, "maintenance", object, before, m)
	}

	return p, nil
}

// Maintenance returns all maintenance, including that whose end has passed, and the revision of
// the catalog. The whole system comes first.
func (s *Service) Maintenance(ctx context.Context) ([]MaintenanceEntry, int64, error) {
	state, err := s.cfg.Store.Load(ctx)
	if err != nil {
		return nil, 0, err
	}

	var list []MaintenanceEntry
	add := func(scope Scope, id string, m *catalogkv.Maintenance) {
		if m != nil {
			list = append(list, MaintenanceEntry{scope, id, *m})
		}
	}

	for id, m := range state.Models {
		add(OneModel, id, m.Spec.Maintenance)
	}

	for id, p := range state.Providers {
		add(OneProvider, id, p.Spec.Maintenance)
	}

	slices.SortFunc(list, func(a, b MaintenanceEntry) int {
		return cmp.Or(strings.Compare(string(a.Scope), string(b.Scope)), strings.Compare(a.ID, b.ID))
	})

	if m := state.Settings.Maintenance; m != nil {
		list = slices.Insert(list, 0, MaintenanceEntry{WholeSystem, "", *m})
	}

	return list, state.Rev, nil
}
