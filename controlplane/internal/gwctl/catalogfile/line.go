package catalogfile

import (
	"encoding/json"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Line returns the line of a member of a catalog file, such as models[3].price.input: the server names members by their
// position, and a file can have a hundred models. For a member that the file lacks, it returns the line of the closest one
// around it; 0 if there is none, or the text is not a catalog.
func Line(text []byte, member string) int {
	if json.Valid(text) {
		text = decodeSurrogates(text)
	}
	var tree yaml.Node
	if yaml.Unmarshal(text, &tree) != nil || len(tree.Content) == 0 {
		return 0
	}

	line := 0
	for n := tree.Content[0]; member != ""; {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		at, next, rest := step(n, member)
		if next == nil {
			break
		}
		line, n, member = at, next, strings.TrimPrefix(rest, ".")
	}

	return line
}

// step finds the part of a node with which a path begins: its line, its value, and the rest of the path. The name of a member
// can have dots; the longest one that fits is meant.
func step(n *yaml.Node, path string) (line int, value *yaml.Node, rest string) {
	switch n.Kind {
	case yaml.MappingNode:
		length := -1
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			after, begins := strings.CutPrefix(path, key.Value)
			if begins && len(key.Value) > length && (after == "" || after[0] == '.' || after[0] == '[') {
				length, line, value, rest = len(key.Value), key.Line, n.Content[i+1], after
			}
		}
	case yaml.SequenceNode:
		index, after, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(n.Content) {
			line, value, rest = n.Content[i].Line, n.Content[i], after
		}
	default:
	}
	return line, value, rest
}
