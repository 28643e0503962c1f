// Package apitest checks a server against its OpenAPI document in tests: it
// finds the operation of a request and validates values and responses by the
// document's schemas. It works for any API.
package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// object is a JSON object of the document.
type object = map[string]any

// Document is an OpenAPI document. It is safe for concurrent use.
type Document struct {
	root object
	// mu guards the compiler, which caches compiled schemas.
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	// Operations are sorted by path and method.
	Operations []Operation
}

// Operation is one operation of the document.
type Operation struct {
	// Method is in upper case; Path is the template, such as "/items/{id}".
	Method, Path string
	// Node is the decoded operation object of the document, Pointer the JSON pointer to it.
	Node    object
	Pointer string
}

// ID returns the operationId.
func (o *Operation) ID() string { return text(o.Node, "operationId") }

const resource = "openapi.json"

var methods = []string{"get", "put", "post", "delete", "patch"}

// Load reads a document in YAML. Compiling its schemas takes long: load it once.
func Load(document []byte) (*Document, error) {
	var plain any
	if err := yaml.Unmarshal(document, &plain); err != nil {
		return nil, fmt.Errorf("apitest: read: %w", err)
	}

	asJSON, err := json.Marshal(plain)
	if err != nil {
		return nil, fmt.Errorf("apitest: convert: %w", err)
	}

	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return nil, fmt.Errorf("apitest: convert: %w", err)
	}

	d := &Document{root: root.(object), compiler: jsonschema.NewCompiler()}
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(resource, root); err != nil {
		return nil, fmt.Errorf("apitest: %w", err)
	}

	for path, item := range member(d.root, "paths") {
		for _, method := range methods {
			if node, ok := item.(object)[method].(object); ok {
				d.Operations = append(d.Operations, Operation{strings.ToUpper(method), path, node, "/paths/" + escape(path) + "/" + method})
			}
		}
	}

	slices.SortFunc(d.Operations, func(a, b Operation) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})

	return d, nil
}

// Root returns the whole document.
func (d *Document) Root() map[string]any { return d.root }

// Check validates a JSON value against the schema at a JSON pointer.
func (d *Document) Check(pointer string, value any) error {
	schema, err := d.compile(pointer)
	if err != nil {
		return fmt.Errorf("apitest: schema %s: %w", pointer, err)
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("apitest: %w", err)
	}
	return nil
}

func (d *Document) compile(pointer string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compiler.Compile(resource + "#" + pointer) //nolint:wrapcheck // the caller wraps it
}

// Resolve follows the reference of a node, and returns the JSON pointer to its
// target and the target. It returns a node without a reference as it is.
func (d *Document) Resolve(pointer string, node map[string]any) (string, map[string]any) {
	for {
		ref, ok := node["$ref"].(string)
		if !ok {
			return pointer, node
		}
		pointer = strings.TrimPrefix(ref, "#")
		node = d.at(pointer)
	}
}

func (d *Document) at(pointer string) object {
	node := d.root
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		node = member(node, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
	}
	return node
}

// Find returns the operation of a request, nil if there is none. A path without
// placeholders takes precedence.
func (d *Document) Find(method, path string) *Operation {
	var found *Operation
	for i := range d.Operations {
		o := &d.Operations[i]
		if o.Method == method && fits(o.Path, path) && (found == nil || !strings.Contains(o.Path, "{")) {
			found = o
		}
	}
	return found
}

// fits reports whether an escaped path matches a template.
func fits(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if !strings.HasPrefix(want[i], "{") && want[i] != got[i] {
			return false
		}
	}
	return true
}

func escape(step string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(step) }

func member(node object, name string) object {
	m, _ := node[name].(object)
	return m
}

func text(node object, name string) string {
	s, _ := node[name].(string)
	return s
}
