package catalog

import (
	"context"
	"testing"

	"modelgateway/controlplane/internal/etag"
)

// retried is a Store that runs the transaction twice, with another change of
// the catalog in between.
type retried struct {
	Store
	before, since *State
	plan          *Plan
}

func (s *retried) Apply(_ context.Context, plan PlanFunc, _ EntriesFunc) (Applied, error) {
	if _, err := plan(s.before); err != nil {
		return Applied{}, err
	}
	var err error
	s.plan, err = plan(s.since)
	return Applied{Before: s.since, After: s.since, Plan: s.plan}, err
}

// An entry without a list keeps the list of the catalog that the transaction
// finally reads, not that of an attempt before.
func TestRetriedPutKeepsTheCurrentList(t *testing.T) {
	t.Parallel()
	s := newService(t)
	store := &retried{before: s.stored(), since: s.stored()}
	s.cfg.Store = store
	second := store.since.Models["m"].Routes["r"]
	second.ID = "r2"
	store.since.Models["m"].Routes["r2"] = second
	entry := store.before.parts().Models[0]
	entry.DisplayName, entry.Routes = "New name", nil
	if _, err := Put(t.Context(), s, ModelPart("m"), entry, etag.Match{}); err != nil {
		t.Fatal(err)
	}
	if len(store.plan.Models) != 1 || store.plan.Models[0].DisplayName != "New name" {
		t.Errorf("models to write: %+v", store.plan.Models)
	}
	for _, c := range store.plan.Changes {
		if c.Kind != "model" {
			t.Errorf("%s %s %s; want nothing but the model changed", c.Action, c.Kind, c.ID)
		}
	}
}
