package strict

import (
	"go.yaml.in/yaml/v3"

	"modelgateway/controlplane/internal/validation"
)

// yamlParser converts the tree of the YAML library.
type yamlParser struct{ invalid validation.Errors }

func parseYAML(data []byte) (*node, validation.Errors) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, validation.Errors{{Detail: "not valid YAML: " + err.Error()}}
	}
	if len(doc.Content) != 1 {
		return &node{kind: null}, nil
	}
	p := yamlParser{}
	tree := p.value(doc.Content[0], "", 0)
	return tree, p.invalid
}

func (p *yamlParser) value(y *yaml.Node, path string, depth int) *node {
	if depth > maxDepth {
		p.invalid.Add(path, "is nested too deep")
		return &node{}
	}
	switch y.Kind {
	case yaml.SequenceNode:
		n := &node{kind: list}
		for i, item := range y.Content {
			n.items = append(n.items, p.value(item, validation.Index(path, i), depth+1))
		}
		return n
	case yaml.MappingNode:
		return p.mapping(y, path, depth)
	case yaml.ScalarNode:
		return scalar(y)
	default:
		p.invalid.Add(path, "is an alias, which is not allowed (line %d)", y.Line)
		return &node{}
	}
}

func (p *yamlParser) mapping(y *yaml.Node, path string, depth int) *node {
	n := &node{kind: object}
	seen := map[string]bool{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		name := y.Content[i]
		at := validation.Member(path, name.Value)
		switch {
		case name.Kind != yaml.ScalarNode || name.Tag == "!!merge":
			p.invalid.Add(path, "has a member whose name is not a string (line %d)", name.Line)
			continue
		case seen[name.Value]:
			p.invalid.Add(at, "is given twice (line %d)", name.Line)
		}
		seen[name.Value] = true
		n.members = append(n.members, member{name.Value, p.value(y.Content[i+1], at, depth+1)})
	}

	return n
}

func scalar(y *yaml.Node) *node {
	n := &node{kind: text, text: y.Value}
	switch y.ShortTag() {
	case "!!null":
		n.kind = null
	case "!!bool":
		n.kind, n.loose = boolean, true
	case "!!int", "!!float":
		n.kind, n.loose = number, true
	case "!!timestamp":
		n.loose = true
	}
	return n
}
