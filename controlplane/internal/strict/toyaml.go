package strict

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// ToYAML converts JSON to YAML, with the names and the order of its members.
func ToYAML(text []byte) ([]byte, error) {
	var tree yaml.Node // JSON is a subset of YAML
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	block(&tree)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&tree); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return out.Bytes(), nil
}

// block sets the block style for lists and objects. It removes the quotes of member names, and
// keeps those of texts, so that "1.00" remains a text.
func block(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			n.Content[i].Style = 0
		}
	}
	if n.Kind != yaml.ScalarNode {
		n.Style = 0
	}
	for _, child := range n.Content {
		block(child)
	}
}
