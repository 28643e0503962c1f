package apidoc_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/platform/apidoc"
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
  responses: {Made: {description: Made., headers: {X-Y: {$ref: "#/components/headers/Y"}}, content: {text/csv: {}, application/json: {schema: {$ref: "#/components/schemas/Whole"}, examples: {One: {$ref: "#/components/examples/One"}, two: {summary: Two., value: 2}}}}}}
  requestBodies: {B: {required: true, content: {application/json: {example: {x: 1}}}}}
  examples: {One: {value: {id: "1"}}}
  headers: {Y: {description: Why., schema: {type: string}}}
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
	if diff := cmp.Diff([]apidoc.Example{{Name: "One", Value: map[string]any{"id": "1"}}, {Name: "two", Summary: "Two.", Value: 2}}, media.Examples); diff != "" {
		t.Errorf("examples: %s", diff)
	}
	if headers := get.Success().Headers; len(headers) != 1 || headers[0].Name != "X-Y" || headers[0].Description != "Why." || headers[0].Schema == nil {
		t.Errorf("headers: %+v", headers)
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
		t.Error("want no operation and no type")
	}
}

func TestParseReturnsErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a: [", "paths: {/a: {get: {summary: no id}}}", "paths: {/a: {get: {operationId: [1]}}}", "paths: [1]"} {
		if _, err := apidoc.Parse([]byte(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
