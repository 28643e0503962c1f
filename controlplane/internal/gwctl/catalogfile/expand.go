// Package catalogfile owns the catalog as a file: the secrets that are put into
// it from the environment, and what a person reads about its differences to the catalog in force.
//
// What a catalog means is the server's to say: this package does not know.
package catalogfile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// variable is ${NAME}; any other dollar stays as it is.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// Expand puts variables of the environment into the secrets of credentials. A
// variable anywhere else is an error, so that no secret gets to where it is
// shown; so is one that is not set. All faults are reported, joined.
func Expand(text []byte, env func(string) string) ([]byte, error) {
	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("is neither YAML nor JSON: %w", err)
	}
	e := expander{env: env}
	for _, root := range tree.Content {
		e.walk(root, nil)
	}
	if len(e.faults) > 0 {
		return nil, errors.Join(e.faults...)
	}
	if !e.changed {
		return text, nil
	}
	out, err := yaml.Marshal(&tree)
	if err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return out, nil
}

type expander struct {
	env     func(string) string
	changed bool
	faults  []error
}

// walk visits every scalar; path holds the names of members, "" for items.
func (e *expander) walk(n *yaml.Node, path []string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			e.walk(n.Content[i+1], append(slices.Clone(path), n.Content[i].Value))
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			e.walk(item, append(slices.Clone(path), ""))
		}
	case yaml.ScalarNode:
		e.scalar(n, path)
	default:
	}
}

// secretPath is where variables may stand.
var secretPath = []string{"providers", "", "credentials", "", "secret"}

func (e *expander) scalar(n *yaml.Node, path []string) {
	if !variable.MatchString(n.Value) {
		return
	}
	if !slices.Equal(path, secretPath) {
		e.faults = append(e.faults, fmt.Errorf("line %d: %s holds a variable; only the secrets of credentials may", n.Line, name(path)))
		return
	}
	value := variable.ReplaceAllStringFunc(n.Value, func(match string) string {
		of := variable.FindStringSubmatch(match)[1]
		found := e.env(of)
		if found == "" {
			e.faults = append(e.faults, fmt.Errorf("line %d: the variable %s is not set", n.Line, of))
		}
		return found
	})
	e.changed = true
	// Whatever it looks like, it is a text.
	n.Value, n.Tag, n.Style = value, "!!str", yaml.DoubleQuotedStyle
}

func name(path []string) string {
	return strings.ReplaceAll(strings.Join(path, "."), "..", "[].")
}
