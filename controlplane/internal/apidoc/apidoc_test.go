package apidoc_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/apidoc"
)

const sample = `
openapi: 3.1.0
tags: [{name: a, description: About a.}]
paths:
  /b/{second}/{first}:
    parameters: [{$ref: "#/components/parameters/First"}]
    get:
      operationId: getB
      tags: [a]
      security: [{token: [read]}]
      parameters: [{name: second, in: path, schema: {type: integer}}, {name: X, in: header, schema: {}}]
      responses:
        default: {description: No.}
        "201": {$ref: "#/components/responses/Made"}
    put:
      operationId: putB
      requestBody: {$ref: "#/components/requestBodies/B"}
components:
  parameters: {First: {name: first, in: path, required: true, schema: {type: string, examples: [f]}}}
  responses: {Made: {description: Made., content: {text/csv: {}, application/json: {schema: {$ref: "#/components/schemas/Whole"}, examples: {One: {$ref: "#/components/examples/One"}}}}}}
  requestBodies: {B: {required: true, content: {application/json: {example: {x: 1}}}}}
  examples: {One: {value: {id: "1"}}}
  schemas:
    Part: {type: object, required: [id], properties: {z: {type: string}, id: {type: [string, "null"], enum: [x, null]}}}
    Whole: {allOf: [{$ref: "#/components/schemas/Part"}, {type: object, properties: {a: {oneOf: [{type: "null"}, {type: integer}]}}}]}
    Loop: {$ref: "#/components/schemas/Loop"}
`

func TestParse(t *testing.T) {
	t.Parallel()
	doc, err := apidoc.Parse([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	get := doc.Operation("getB")
	if get == nil || get.Method != http.MethodGet || get.Scope != "read" || get.Tag != "a" || get.Success().Status != "201" {
		t.Fatalf("got %+v", get)
	}
	if params := get.PathParams(); len(params) != 2 || params[0].Name != "second" || params[1].Name != "first" || !params[1].Required {
		t.Errorf("parameters of the path: %+v", params)
	}
	media, found := apidoc.In(get.Success().Media, "application/json")
	if diff := cmp.Diff(map[string]any{"id": "1"}, media.Example); !found || diff != "" {
		t.Errorf("example: %s", diff)
	}
	var members []string
	for _, p := range doc.Members(media.Schema) {
		members = append(members, p.Name)
		if p.Required != (p.Name == "id") {
			t.Errorf("%s required: %t", p.Name, p.Required)
		}
	}
	if diff := cmp.Diff([]string{"z", "id", "a"}, members); diff != "" {
		t.Errorf("members: %s", diff)
	}
	for name, want := range map[string]string{"z": "string", "id": "string", "a": "integer"} {
		member := doc.Member(media.Schema, name)
		if got := doc.Kind(member); got != want || doc.Nullable(member) != (name != "z") {
			t.Errorf("%s is %s, nullable %t; want %s", name, got, doc.Nullable(member), want)
		}
	}
	if put := doc.Operation("putB"); !put.Body.Required || put.Body.Media[0].Example == nil {
		t.Errorf("body: %+v", put.Body)
	}
	if doc.Operation("none") != nil || doc.Kind(&apidoc.Schema{Ref: "#/components/schemas/Loop"}) != "" {
		t.Error("something where nothing is")
	}
}

func TestParseTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a: [", "paths: {/a: {get: {summary: no id}}}", "paths: {/a: {get: {operationId: [1]}}}", "paths: [1]"} {
		if _, err := apidoc.Parse([]byte(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

// Every operation of the API has what a program needs to derive from it.
func TestTheAPI(t *testing.T) {
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
