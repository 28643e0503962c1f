package providersim

import (
	"os"
	"slices"
	"testing"

	"go.yaml.in/yaml/v4"
)

// vendorParams are parameters that the gateway sends and that only some
// providers of the format accept. The simulator refuses them.
var vendorParams = map[Format][]string{Chat: {"cache_salt"}}

// The simulator accepts every parameter that the gateway sends to a provider:
// those of the public API's document that the gateway neither drops nor rejects.
func TestSimulatorAcceptsTheSentParameters(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../dataplane/api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Action string `yaml:"x-gateway"` //nolint:tagliatelle // an extension of OpenAPI
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for f, schema := range map[Format]string{
		Chat: "ChatRequest", Responses: "ResponsesRequest", Messages: "MessagesRequest", Images: "ImageRequest", Videos: "VideoRequest",
	} {
		properties := doc.Components.Schemas[schema].Properties
		if len(properties) < 5 {
			t.Errorf("%s has only %d parameters", schema, len(properties))
		}
		for name, p := range properties {
			known := slices.ContainsFunc(paramTable[f], func(p param) bool { return p.Name == name })
			sent := p.Action != "drop" && p.Action != "reject"
			if sent && !known && !slices.Contains(vendorParams[f], name) {
				t.Errorf("%s: the gateway sends %s; the simulator refuses it because params.json does not have it", f, name)
			}
		}
	}
}
