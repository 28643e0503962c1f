package e2e

import (
	"strings"
	"testing"

	"modelgateway/scripts/e2e/rig"
)

// The catalog can allow, force and reject parameters per model and route. Tools that cost
// extra need a price.
func TestCatalogOverridesParameters(t *testing.T) {
	a := newAPI(t)
	params := map[string]any{"chat": map[string]any{
		"web_search_options": map[string]any{"policy": "forward"},
		"temperature":        map[string]any{"policy": "force", "value": 0.5},
		"seed":               map[string]any{"policy": "reject"},
		"top_p":              map[string]any{"policy": "drop"},
	}}
	list := map[string]any{"input": "1.00", "output": "2.00", "server_tool": "0.01"}
	model := a.Model(t, rig.Model{Formats: []string{"chat"}, Params: params, Price: list})
	body := chat.body(model)
	body["web_search_options"], body["temperature"], body["top_p"] = map[string]any{}, 0.9, 0.1
	a.ok(t, chat.path, body)
	a.refusedPost(t, chat.path, chat.with(model, "seed", 1), refusal{400, "unsupported_parameter", "seed"})
	got := a.upstream(t, model)
	if len(got) != 1 || got[0].body["web_search_options"] == nil || got[0].body["temperature"] != 0.5 || got[0].body["top_p"] != nil {
		t.Errorf("the provider got %v", got)
	}
}

// The addresses of some providers name the operator's account there: the catalog can ask for the images themselves.
func TestCatalogCanAskForImagesInPlaceOfAddresses(t *testing.T) {
	a := newAPI(t)
	for _, tt := range []struct {
		params map[string]any
		member string
	}{
		{nil, "url"},
		{map[string]any{"images": map[string]any{"response_format": map[string]any{"policy": "force", "value": "b64_json"}}}, "b64_json"},
	} {
		model := a.Model(t, rig.Model{Type: "image", Formats: []string{"images"}, Params: tt.params})
		answer := a.ok(t, images.path, images.with(model, "response_format", "url"))
		for _, member := range []string{"url", "b64_json"} {
			if got := strings.Contains(string(answer.Body), `"`+member+`":"`); got != (member == tt.member) {
				t.Errorf("%v: got %.200s", tt.params, answer.Body)
			}
		}
	}
}

// A long input is charged at the price of its tier.
func TestPriceTiers(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Formats: []string{"chat"}, Directives: "out=10", Price: map[string]any{
		"input": "1.00", "output": "2.00", "tiers": []any{map[string]any{"above_input": 100, "input": "3.00", "output": "4.00"}},
	}})
	for text, list := range map[string]prices{
		"short":                      {"input": "1.00", "output": "2.00"},
		strings.Repeat("long ", 200): {"input": "3.00", "output": "4.00"},
	} {
		answer := a.ok(t, chat.path, chatBody(model, text, false))
		usage := a.AwaitUsage(t, answer.RequestID())
		checkReceipt(t, usage, list, *journalEntry(t, a.Rig, model, *usage.ProviderRequestID).Counts)
	}
}
