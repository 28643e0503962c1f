package apidoc

import (
	"cmp"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Schema is a schema as the document has it. Document.Resolve follows its
// references.
type Schema struct {
	Ref         string           `yaml:"$ref"`
	Type        oneOrMore        `yaml:"type"`
	Description string           `yaml:"description"`
	Format      string           `yaml:"format"`
	Enum        []any            `yaml:"enum"`
	Default     any              `yaml:"default"`
	Examples    []any            `yaml:"examples"`
	Pattern     string           `yaml:"pattern"`
	Minimum     *int64           `yaml:"minimum"`
	Maximum     *int64           `yaml:"maximum"`
	WriteOnly   bool             `yaml:"writeOnly"` //nolint:tagliatelle // OpenAPI's name
	Required    []string         `yaml:"required"`
	Properties  members[*Schema] `yaml:"properties"`
	Items       *Schema          `yaml:"items"`
	AllOf       []*Schema        `yaml:"allOf"` //nolint:tagliatelle // OpenAPI's name
	OneOf       []*Schema        `yaml:"oneOf"` //nolint:tagliatelle // OpenAPI's name
	AnyOf       []*Schema        `yaml:"anyOf"` //nolint:tagliatelle // OpenAPI's name

	// Name is the name of the component that the schema came from, if any.
	Name string `yaml:"-"`
}

// oneOrMore is a text or a list of texts.
type oneOrMore []string

func (o *oneOrMore) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode((*[]string)(o)) //nolint:wrapcheck // the error has the line
	}
	*o = []string{n.Value}
	return nil
}

// Property is a member of an object.
type Property struct {
	Name     string
	Required bool
	Schema   *Schema
}

// maxDepth bounds how many references are followed from one schema.
const maxDepth = 16

// Resolve returns the schema with its references followed and its parts merged,
// so that Type, Properties and Required are complete. Schemas inside Properties
// and Items are not resolved. It never returns nil.
func (d *Document) Resolve(s *Schema) *Schema { return d.resolve(s, 0) }

func (d *Document) resolve(s *Schema, depth int) *Schema {
	if s == nil || depth > maxDepth {
		return &Schema{}
	}

	whole := *s
	if s.Ref != "" {
		target := d.schemas[refName(s.Ref)]
		whole = *d.resolve(target, depth+1)
		whole.Name = refName(s.Ref)
		// Keywords beside a reference take precedence over those of its target.
		whole.Description = cmp.Or(s.Description, whole.Description)
		if s.Default != nil {
			whole.Default = s.Default
		}
	}

	parts := s.AllOf
	if alternative := d.alternative(s); alternative != nil {
		parts = append(slices.Clone(parts), alternative)
	}

	for _, part := range parts {
		p := d.resolve(part, depth+1)
		if len(whole.Type) == 0 {
			whole.Type = p.Type
		}
		whole.Name = cmp.Or(whole.Name, p.Name)
		whole.Properties = slices.Concat(whole.Properties, p.Properties)
		whole.Required = slices.Concat(whole.Required, p.Required)
		whole.Description = cmp.Or(whole.Description, p.Description)
		whole.Format, whole.Pattern = cmp.Or(whole.Format, p.Format), cmp.Or(whole.Pattern, p.Pattern)
		if whole.Items == nil {
			whole.Items = p.Items
		}
		if whole.Enum == nil {
			whole.Enum = p.Enum
		}
	}

	return &whole
}

// alternative returns the first of several alternatives that is not null.
func (d *Document) alternative(s *Schema) *Schema {
	for _, choice := range slices.Concat(s.OneOf, s.AnyOf) {
		if !slices.Equal(choice.Type, []string{"null"}) {
			return choice
		}
	}
	return nil
}

// Members returns the members of an object in the order of the document, and
// none for a schema of another type.
func (d *Document) Members(s *Schema) []Property {
	whole := d.Resolve(s)
	var all []Property
	for _, p := range whole.Properties {
		all = append(all, Property{p.name, slices.Contains(whole.Required, p.name), p.value})
	}
	return all
}

// Member returns the schema of a member, nil if there is none.
func (d *Document) Member(s *Schema, name string) *Schema {
	found, _ := d.Resolve(s).Properties.find(name)
	return found
}

// Kind returns the type that is not null: "string", "integer", "number",
// "boolean", "array" or "object", or "" if every type is valid.
func (d *Document) Kind(s *Schema) string {
	whole := d.Resolve(s)
	for _, t := range whole.Type {
		if t != "null" {
			return t
		}
	}
	switch {
	case len(whole.Properties) > 0:
		return "object"
	case whole.Items != nil:
		return "array"
	default:
		return ""
	}
}

// Nullable reports whether null is a valid value.
func (d *Document) Nullable(s *Schema) bool {
	whole := d.Resolve(s)
	isNull := func(c *Schema) bool { return slices.Contains(c.Type, "null") }
	return isNull(whole) || slices.ContainsFunc(whole.OneOf, isNull) || slices.ContainsFunc(whole.AnyOf, isNull)
}

// Example returns an example of a value: the schema's own, or the first of its
// enumeration, or its default; nil if there is none.
func (d *Document) Example(s *Schema) any {
	whole := d.Resolve(s)
	switch {
	case len(whole.Examples) > 0:
		return whole.Examples[0]
	case len(whole.Enum) > 0:
		return whole.Enum[0]
	default:
		return whole.Default
	}
}

// SchemaNames returns the names of the schemas in components, sorted.
func (d *Document) SchemaNames() []string { return slices.Sorted(maps.Keys(d.schemas)) }
