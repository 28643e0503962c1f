package api_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"modelgateway/controlplane/api"
	"modelgateway/shared/platform/apidoc"
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

// Every operation of the API has what a program needs to derive a command or a
// table from it.
func TestEveryOperationIsComplete(t *testing.T) {
	t.Parallel()
	doc, err := apidoc.Parse(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, op := range doc.Operations {
		if ids[op.ID] || op.Summary == "" || op.Tag == "" || op.Scope == "" || op.Success().Status == "" {
			t.Errorf("%s: %+v", op.ID, op)
		}
		ids[op.ID] = true
		for _, media := range op.Success().Media {
			if media.Type == "application/json" && doc.Kind(media.Schema) != "object" {
				t.Errorf("%s answers a %q", op.ID, doc.Kind(media.Schema))
			}
		}
	}
}
