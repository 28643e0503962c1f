package e2e

import (
	"encoding/base64"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/scripts/providersim"
)

// journalEntry returns the entry of the simulator's journal for the answer with an id.
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

// decodeBase64 returns the body of a request that was not text, nil for text.
func decodeBase64(t *testing.T, entry providersim.Entry) []byte {
	t.Helper()
	if !entry.BodyBase64 {
		return nil
	}
	body, err := base64.StdEncoding.DecodeString(entry.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
