package e2e

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/scripts/e2e/rig"
)

// A response repeats values of its request. Replaced values come back as the client sent them,
// or not at all, and never as the gateway sent them.
func TestReplacedValuesAreNotEchoed(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Formats: []string{"responses"}})
	body := responses.body(model)
	sent := map[string]any{
		"user": "ann@example.org", "safety_identifier": "ann-1", "prompt_cache_key": "ann-2", "metadata": map[string]any{"team": "blue"}, "store": true,
	}
	maps.Copy(body, sent)
	check := func(response map[string]any) {
		t.Helper()
		for name, value := range sent {
			got := response[name]
			if empty, ok := got.(map[string]any); ok && len(empty) == 0 {
				got = nil
			}
			if name != "store" && got != nil && !cmp.Equal(got, value) {
				t.Errorf("%s comes back as %v; want %v or nothing", name, got, value)
			}
		}
		if response["model"] != model {
			t.Errorf("the model comes back as %v; want %s", response["model"], model)
		}
	}
	var whole map[string]any
	a.ok(t, responses.path, body).Decode(t, &whole)
	check(whole)

	body["stream"] = true
	found := 0
	for _, ev := range a.ok(t, responses.path, body).Events() {
		var event struct{ Response map[string]any }
		if err := json.Unmarshal([]byte(ev.Data), &event); err != nil {
			t.Fatal(err)
		}
		if event.Response != nil {
			found++
			check(event.Response)
		}
	}
	if found != 3 { // created, in progress, completed
		t.Errorf("%d events have the response; want 3", found)
	}
	for _, entry := range a.Sim.Journal(t, model) {
		for _, secret := range []string{"ann@example.org", `"ann-1"`, `"ann-2"`, "blue"} {
			if strings.Contains(entry.Body, secret) {
				t.Errorf("the provider got %s in %s", secret, entry.Body)
			}
		}
	}
}
