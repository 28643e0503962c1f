package e2e

import (
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/scripts/providersim"
)

// journalEntry finds what the simulator noted about the answer with an id.
func journalEntry(t *testing.T, r *rig.Rig, model, answerID string) providersim.Entry {
	t.Helper()
	for _, e := range r.Sim.Journal(t, model) {
		if e.AnswerID == answerID {
			return e
		}
	}
	t.Fatalf("the simulator gave no answer %s for %s", answerID, model)
	return providersim.Entry{}
}
