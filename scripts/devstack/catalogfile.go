package devstack

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// SimVariable is the name of the variable that catalog files use for the URL of the
// provider simulator.
const SimVariable = "PROVIDERSIM_URL"

// variablePattern matches ${NAME}; any other dollar stays as it is.
var variablePattern = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// loadCatalog reads a catalog file and expands its variables. It returns the document and
// its media type.
func loadCatalog(file string, lookup func(string) (string, bool)) (document, mediaType string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", fmt.Errorf("catalog: %w", err)
	}
	mediaType = "application/yaml"
	if filepath.Ext(file) == ".json" {
		mediaType = "application/json"
	}
	document, err = expand(string(text), lookup)
	if err != nil {
		return "", "", fmt.Errorf("catalog %s: %w", file, err)
	}
	return document, mediaType, nil
}

// expand replaces each ${NAME} outside of comment lines with the value of the variable. The
// error names all variables that are missing or have characters that would end a quoted
// string.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var missing, invalid []string
	replace := func(match string) string {
		name := variablePattern.FindStringSubmatch(match)[1]
		value, ok := lookup(name)
		switch {
		case !ok || value == "":
			missing = append(missing, name)
		case strings.ContainsAny(value, "\"'\\\r\n"):
			invalid = append(invalid, name)
		}
		return value
	}

	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			line = variablePattern.ReplaceAllStringFunc(line, replace)
		}
		out.WriteString(line)
	}

	switch {
	case len(missing) > 0:
		return "", fmt.Errorf("set the environment variable %s first", list(missing))
	case len(invalid) > 0:
		return "", fmt.Errorf("the value of %s contains a quote, a backslash or a line break", list(invalid))
	}

	return out.String(), nil
}

// list returns the distinct names, sorted.
func list(names []string) string {
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
