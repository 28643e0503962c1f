package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/api"
	"modelgateway/shared/platform/apidoc/apitest"
)

// lint is one run over the document.
type lint struct {
	*testing.T
	doc *apitest.Document
	ids map[string]bool
}

// TestRules keeps the rules that stand at the head of the document.
func TestRules(t *testing.T) {
	t.Parallel()
	doc, err := apitest.Load(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	l := lint{t, doc, map[string]bool{}}
	if len(doc.Operations) < 20 {
		t.Fatalf("%d operations", len(doc.Operations))
	}
	for i := range doc.Operations {
		op := &doc.Operations[i]
		l.operation(op)
		l.request(op)
		l.responses(op)
		l.parameters(op)
	}
	for name, schema := range member(doc.Root(), "components", "schemas") {
		for i, example := range items(schema.(map[string]any)["examples"]) {
			l.fits(fmt.Sprintf("schema %s, example %d", name, i), "/components/schemas/"+name, example)
		}
	}
}

func (l *lint) operation(op *apitest.Operation) {
	at := op.Method + " " + op.Path
	if op.ID() == "" || l.ids[op.ID()] {
		l.Errorf("%s: its operationId %q is missing or used twice", at, op.ID())
	}
	l.ids[op.ID()] = true
	if summary, _ := op.Node["summary"].(string); summary == "" || strings.HasSuffix(summary, ".") {
		l.Errorf("%s: the summary is %q; want one without a full stop", at, summary)
	}
	known := map[string]bool{}
	for _, tag := range items(l.doc.Root()["tags"]) {
		known[tag.(map[string]any)["name"].(string)] = true
	}
	if tags := items(op.Node["tags"]); len(tags) != 1 || !known[tags[0].(string)] {
		l.Errorf("%s: tags %v; want one that the document describes", at, tags)
	}
	if _, ok := op.Node["security"]; !ok {
		l.Errorf("%s: names no scope", at)
	}
}

func (l *lint) request(op *apitest.Operation) {
	body, ok := op.Node["requestBody"].(map[string]any)
	if !ok {
		return
	}
	at, body := l.doc.Resolve(op.Pointer+"/requestBody", body)
	l.content(op.ID()+": request", at, body)
	_, schema := l.doc.Resolve("", member(body, "content", "application/json", "schema"))
	if closed, ok := schema["additionalProperties"].(bool); schema["type"] == "object" && (!ok || closed) {
		l.Errorf("%s: the schema of the request lets unknown members pass", op.ID())
	}
}

func (l *lint) responses(op *apitest.Operation) {
	responses := member(op.Node, "responses")
	if ref := member(responses, "default")["$ref"]; ref != "#/components/responses/Problem" {
		l.Errorf("%s: the default answer is no Problem", op.ID())
	}
	waits := slices.ContainsFunc(l.parametersOf(op), func(p map[string]any) bool { return p["name"] == "wait" })
	for status, response := range responses {
		at, response := l.doc.Resolve(op.Pointer+"/responses/"+status, response.(map[string]any))
		l.content(op.ID()+": "+status, at, response)
		if waits && status != "default" && member(response, "headers", "Applied") == nil {
			l.Errorf("%s: %s has no header Applied", op.ID(), status)
		}
	}
}

// content checks that every body has an example that fits its schema.
func (l *lint) content(at, pointer string, node map[string]any) {
	for media, content := range member(node, "content") {
		content := content.(map[string]any)
		examples := map[string]any{}
		if example, ok := content["example"]; ok {
			examples["example"] = example
		}
		for name, example := range member(content, "examples") {
			_, example := l.doc.Resolve("", example.(map[string]any))
			examples[name] = example["value"]
		}
		if len(examples) == 0 {
			l.Errorf("%s: %s has no example", at, media)
		}
		for name, example := range examples {
			if content["schema"] == nil {
				continue
			}
			l.fits(at+": example "+name, pointer+"/content/"+strings.ReplaceAll(media, "/", "~1")+"/schema", example)
		}
	}
}

func (l *lint) parameters(op *apitest.Operation) {
	for _, p := range l.parametersOf(op) {
		if p["in"] == "path" && !strings.Contains(op.Path, "{"+p["name"].(string)+"}") {
			l.Errorf("%s: %s is no part of the path", op.ID(), p["name"])
		}
		if member(p, "schema") == nil {
			l.Errorf("%s: %s has no schema", op.ID(), p["name"])
		}
	}
	has := func(name string) bool {
		return slices.ContainsFunc(l.parametersOf(op), func(p map[string]any) bool { return p["name"] == name })
	}
	// A stored response answers a repeated request in place of a second change. These change nothing, so repeating them is
	// harmless: revealKey's response is a secret that must not be stored, previewPrices has to count the requests that were
	// settled in between, and proposePriceList compares with the catalog as it is then. The last two are POSTs only since
	// their input is a document. importBill knows the same file by its content.
	withoutKey := []string{"revealKey", "previewPrices", "proposePriceList", "importBill"}
	if op.Method == http.MethodPost && !slices.Contains(withoutKey, op.ID()) && !has("Idempotency-Key") {
		l.Errorf("%s takes no Idempotency-Key", op.ID())
	}
	if op.Method == http.MethodPatch && !has("If-Match") {
		l.Errorf("%s takes no If-Match", op.ID())
	}
	if has("wait") != has("timeout") {
		l.Errorf("%s: wait and timeout go together", op.ID())
	}
}

func (l *lint) parametersOf(op *apitest.Operation) []map[string]any {
	all := slices.Concat(items(op.Node["parameters"]), items(member(l.doc.Root(), "paths", op.Path)["parameters"]))
	parameters := make([]map[string]any, len(all))
	for i, p := range all {
		_, parameters[i] = l.doc.Resolve("", p.(map[string]any))
	}
	return parameters
}

func (l *lint) fits(at, pointer string, value any) {
	if err := l.doc.Check(pointer, value); err != nil {
		l.Errorf("%s: %v", at, err)
	}
}

func member(node map[string]any, path ...string) map[string]any {
	for _, name := range path {
		node, _ = node[name].(map[string]any)
	}
	return node
}

func items(v any) []any {
	list, _ := v.([]any)
	return list
}
