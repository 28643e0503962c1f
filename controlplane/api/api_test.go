package api_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"modelgateway/controlplane/api"
)

// schemaKeywords is every keyword that a schema of the document uses. A
// description with a comma and no quotes splits into members that are none.
var schemaKeywords = map[string]bool{
	"type": true, "description": true, "properties": true, "required": true, "items": true, "enum": true, "format": true,
	"examples": true, "minimum": true, "maximum": true, "minLength": true, "maxLength": true, "minItems": true, "maxItems": true,
	"pattern": true, "default": true, "additionalProperties": true, "allOf": true, "$ref": true, "readOnly": true, "writeOnly": true,
}

func TestDocumentIsWellFormed(t *testing.T) {
	t.Parallel()
	var doc struct {
		OpenAPI    string `yaml:"openapi"`
		Components struct {
			Schemas map[string]map[string]any `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(api.Document, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || len(doc.Components.Schemas) < 30 {
		t.Errorf("version %q with %d schemas", doc.OpenAPI, len(doc.Components.Schemas))
	}
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		for keyword, value := range schema {
			if !schemaKeywords[keyword] && !strings.HasPrefix(keyword, "x-") {
				t.Errorf("%s: %q is no keyword of a schema", path, keyword)
			}
			switch keyword {
			case "properties":
				for name, property := range value.(map[string]any) {
					walk(path+"."+name, property.(map[string]any))
				}
			case "items", "additionalProperties":
				if inner, ok := value.(map[string]any); ok {
					walk(path+"."+keyword, inner)
				}
			case "allOf":
				for _, inner := range value.([]any) {
					walk(path, inner.(map[string]any))
				}
			}
		}
	}
	for name, schema := range doc.Components.Schemas {
		walk(name, schema)
	}
}
