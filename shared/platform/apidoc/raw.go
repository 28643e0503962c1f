package apidoc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// member is a member of an object.
type member[T any] struct {
	name  string
	value T
}

// members is an object with its members in the order of the document.
type members[T any] []member[T]

func (m *members[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: not an object", n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		var value T
		if err := n.Content[i+1].Decode(&value); err != nil {
			return err //nolint:wrapcheck // the error has the line
		}
		*m = append(*m, member[T]{n.Content[i].Value, value})
	}
	return nil
}

func (m members[T]) find(name string) (value T, found bool) {
	for _, each := range m {
		if each.name == name {
			return each.value, true
		}
	}
	return value, false
}

// The raw types have the structure of the document, with its references.
type rawDocument struct {
	Tags []struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
	} `yaml:"tags"`
	Paths      members[members[yaml.Node]] `yaml:"paths"`
	Components struct {
		Schemas       map[string]*Schema     `yaml:"schemas"`
		Parameters    map[string]rawParam    `yaml:"parameters"`
		Responses     map[string]rawResponse `yaml:"responses"`
		RequestBodies map[string]*rawBody    `yaml:"requestBodies"` //nolint:tagliatelle // OpenAPI's name
		Examples      map[string]rawExample  `yaml:"examples"`
		Headers       map[string]rawHeader   `yaml:"headers"`
	} `yaml:"components"`
}

type rawParam struct {
	Ref   string `yaml:"$ref"`
	Param `yaml:",inline"`
}

type rawMedia struct {
	Schema   *Schema             `yaml:"schema"`
	Example  any                 `yaml:"example"`
	Examples members[rawExample] `yaml:"examples"`
}

type rawExample struct {
	Ref     string `yaml:"$ref"`
	Summary string `yaml:"summary"`
	Value   any    `yaml:"value"`
}

type rawHeader struct {
	Ref         string  `yaml:"$ref"`
	Description string  `yaml:"description"`
	Schema      *Schema `yaml:"schema"`
}

type rawBody struct {
	Ref      string            `yaml:"$ref"`
	Required bool              `yaml:"required"`
	Content  members[rawMedia] `yaml:"content"`
}

type rawResponse struct {
	Ref         string             `yaml:"$ref"`
	Description string             `yaml:"description"`
	Headers     members[rawHeader] `yaml:"headers"`
	Content     members[rawMedia]  `yaml:"content"`
}

type rawOperation struct {
	ID          string                `yaml:"operationId"` //nolint:tagliatelle // OpenAPI's name
	Tags        []string              `yaml:"tags"`
	Summary     string                `yaml:"summary"`
	Description string                `yaml:"description"`
	Security    []map[string][]string `yaml:"security"`
	Parameters  []rawParam            `yaml:"parameters"`
	RequestBody *rawBody              `yaml:"requestBody"` //nolint:tagliatelle // OpenAPI's name
	Responses   members[rawResponse]  `yaml:"responses"`
}

// methods are the members of a path item that are operations.
var methods = []string{"get", "put", "post", "delete", "patch", "head", "options"}

// operations reads the operations of a path.
func (r *rawDocument) operations(path member[members[yaml.Node]]) ([]*Operation, error) {
	var shared []rawParam
	if node, found := path.value.find("parameters"); found {
		if err := node.Decode(&shared); err != nil {
			return nil, fmt.Errorf("apidoc: %s: %w", path.name, err)
		}
	}

	var found []*Operation
	for _, each := range path.value {
		if !slices.Contains(methods, each.name) {
			continue
		}
		var raw rawOperation
		if err := each.value.Decode(&raw); err != nil {
			return nil, fmt.Errorf("apidoc: %s %s: %w", each.name, path.name, err)
		}
		if raw.ID == "" {
			return nil, fmt.Errorf("apidoc: %s %s has no operationId", each.name, path.name)
		}
		found = append(found, r.operation(strings.ToUpper(each.name), path.name, &raw, shared))
	}

	return found, nil
}

func (r *rawDocument) operation(method, path string, raw *rawOperation, shared []rawParam) *Operation {
	op := &Operation{
		ID:          raw.ID,
		Method:      method,
		Path:        path,
		Summary:     raw.Summary,
		Description: strings.TrimSpace(raw.Description),
	}
	if len(raw.Tags) > 0 {
		op.Tag = raw.Tags[0]
	}

	for _, alternative := range raw.Security {
		for _, scopes := range alternative {
			if len(scopes) > 0 {
				op.Scope = cmp.Or(op.Scope, scopes[0])
			}
		}
	}

	for _, p := range slices.Concat(shared, raw.Parameters) {
		if p.Ref != "" {
			p = r.Components.Parameters[refName(p.Ref)]
		}
		op.Params = append(op.Params, p.Param)
	}

	if body := raw.RequestBody; body != nil {
		if body.Ref != "" {
			body = r.Components.RequestBodies[refName(body.Ref)]
		}
		if body != nil {
			op.Body = &Body{Required: body.Required, Media: r.media(body.Content)}
		}
	}

	for _, each := range raw.Responses {
		answer := each.value
		if answer.Ref != "" {
			answer = r.Components.Responses[refName(answer.Ref)]
		}
		op.Responses = append(op.Responses, Response{
			Status:      each.name,
			Description: answer.Description,
			Headers:     r.headers(answer.Headers),
			Media:       r.media(answer.Content),
		})
	}

	return op
}

func (r *rawDocument) media(content members[rawMedia]) []Media {
	var all []Media
	for _, each := range content {
		m := Media{Type: each.name, Schema: each.value.Schema}
		if each.value.Example != nil {
			m.Examples = []Example{{Value: each.value.Example}}
		}
		for _, named := range each.value.Examples {
			example := named.value
			if example.Ref != "" {
				example = r.Components.Examples[refName(example.Ref)]
			}
			m.Examples = append(m.Examples, Example{named.name, example.Summary, example.Value})
		}
		if len(m.Examples) > 0 {
			m.Example = m.Examples[0].Value
		}
		all = append(all, m)
	}

	return all
}

func (r *rawDocument) headers(written members[rawHeader]) []Header {
	var all []Header
	for _, each := range written {
		h := each.value
		if h.Ref != "" {
			h = r.Components.Headers[refName(h.Ref)]
		}
		all = append(all, Header{each.name, h.Description, h.Schema})
	}
	return all
}

// refName returns the last part of a reference within the document.
func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }
