// Package catalogfile expands environment variables in the secrets of catalog files, and writes the differences from the
// current catalog as text. Only the server interprets a catalog.
package catalogfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// variable matches ${NAME}. Other dollar signs have no meaning.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// Expand replaces environment variables in the secrets and parameters of credentials. A variable in another place is an error, because
// other values are shown to people; so is a variable that is not set. All errors are returned, joined.
func Expand(text []byte, env func(string) string) ([]byte, error) {
	if json.Valid(text) {
		text = decodeSurrogates(text)
	}

	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("neither YAML nor JSON: %w", err)
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

// surrogates matches an escape of JSON: a pair of surrogates, or any other.
var surrogates = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\.`)

// decodeSurrogates replaces the pairs of surrogates in a JSON text by the characters that they stand for. JSON allows
// such escapes, YAML does not.
func decodeSurrogates(text []byte) []byte {
	return surrogates.ReplaceAllFunc(text, func(escape []byte) []byte {
		var character string
		if len(escape) == 2 || json.Unmarshal([]byte(`"`+string(escape)+`"`), &character) != nil {
			return escape
		}
		return []byte(character)
	})
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

// credentialPath is the path of a credential.
var credentialPath = []string{"providers", "", "credentials", ""}

// isSecret reports whether variables are allowed at a path: in the secret, the parameters, the secret headers, the certificate and the key
// of a credential.
func isSecret(path []string) bool {
	if len(path) <= len(credentialPath) || !slices.Equal(path[:len(credentialPath)], credentialPath) {
		return false
	}
	switch rest := path[len(credentialPath):]; rest[0] {
	case "secret", "certificate", "private_key":
		return len(rest) == 1
	case "headers", "parameters":
		return len(rest) == 2
	}
	return false
}

func (e *expander) scalar(n *yaml.Node, path []string) {
	if !variable.MatchString(n.Value) {
		return
	}

	if !isSecret(path) {
		const text = "line %d: %s contains a variable; only secrets and parameters of credentials may"
		e.faults = append(e.faults, fmt.Errorf(text, n.Line, name(path)))
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
	// The value is a string even if it looks like a number.
	n.Value, n.Tag, n.Style = value, "!!str", yaml.DoubleQuotedStyle
}

func name(path []string) string {
	return strings.ReplaceAll(strings.Join(path, "."), "..", "[].")
}
