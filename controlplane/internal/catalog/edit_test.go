package catalog

import (
	"context"
	"testing"

	"modelgateway/controlplane/internal/etag"
)

// overtaken is a Store whose transaction is run again: by then somebody else
// has changed the catalog.
type overtaken struct {
	Store
	before, since *State
	plan          *Plan
}

func (s *overtaken) Apply(_ context.Context, plan func(*State) (*Plan, error), _ func(before, after *State) ([]Entry, error)) (int64, error) {
	if _, err := plan(s.before); err != nil {
		return 0, err
	}
	var err error
	s.plan, err = plan(s.since)
	return 1, err
}

// TestPutAgain: an entry without a list keeps the list as it is when the
// change is written, not as it was at the first attempt.
func TestPutAgain(t *testing.T) {
	t.Parallel()
	s := newService(t)
	store := &overtaken{before: s.stored(), since: s.stored()}
	s.cfg.Store = store
	second := store.since.Models["m"].Routes["r"]
	second.ID = "r2"
	store.since.Models["m"].Routes["r2"] = second
	entry := store.before.parts().Models[0]
	entry.DisplayName, entry.Routes = "New name", nil
	if _, _, _, err := Put(t.Context(), s, ModelPart("m"), entry, etag.Match{}); err != nil {
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
