package docs

import (
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestNamedSettingsAndValuesExist: a setting or a value of the chart that the pages on operations name
// in backquotes, or set in a command, is one.
func TestNamedSettingsAndValuesExist(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "deploy/helm/modelgateway/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	settings := read(t, "docs/settings.md")
	named := regexp.MustCompile("`([a-z][A-Za-z_]*(?:\\.[a-z][A-Za-z_]*)+)(?:: [^`]*)?`|--set ([A-Za-z.]+)=")
	checked := 0
	for _, path := range files(t, ".md") {
		if !strings.HasPrefix(path, "docs/operations/") {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(read(t, path), -1) {
			name := m[1] + m[2]
			switch name[strings.LastIndex(name, ".")+1:] {
			case "md", "yaml", "json", "dump", "sql", "conf", "crt", "signal", "go", "txt": // a file
				continue
			}
			if name == "stream_options.include_usage" { // a parameter of requests
				continue
			}
			checked++
			if !strings.Contains(settings, "`"+name+"`") && !hasPath(values, strings.Split(name, ".")) {
				t.Errorf("%s names %s, which is neither a setting nor a value of the chart", path, name)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d names found", checked)
	}
}

// hasPath reports whether nested maps have a value at a path.
func hasPath(values map[string]any, path []string) bool {
	value, ok := values[path[0]]
	if len(path) == 1 || !ok {
		return ok
	}
	nested, ok := value.(map[string]any)
	return ok && hasPath(nested, path[1:])
}

// The page of the public API lists each header that the API document gives to a response.
func TestHeadersOfResponsesAreListed(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(read(t, "docs/api.md"), "\n## Headers\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	names := regexp.MustCompile(`(?m)^ +([a-z-]+): \{\$ref: '#/components/headers/`).FindAllStringSubmatch(read(t, "dataplane/api/openapi.yaml"), -1)
	if len(names) < 20 {
		t.Fatalf("found only %d headers", len(names))
	}
	missing := map[string]bool{}
	for _, m := range names {
		if !strings.Contains(section, "`"+m[1]+"`") {
			missing[m[1]] = true
		}
	}
	for name := range missing {
		t.Errorf("docs/api.md does not list the header %s", name)
	}
}

// A text that lists the scopes of the admin API lists all of them.
func TestListsOfScopesAreWhole(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(read(t, "controlplane/api/openapi.yaml"), "\n    Scope:\n")
	_, list, _ := strings.Cut(rest, "enum: [")
	list, _, found := strings.Cut(list, "]")
	scopes := strings.Split(list, ", ")
	if !found || len(scopes) < 5 {
		t.Fatalf("the API document has the scopes %q", scopes)
	}
	lists := 0
	for _, path := range files(t, ".md") {
		for paragraph := range strings.SplitSeq(read(t, path), "\n\n") {
			var missing []string
			for _, scope := range scopes {
				if !strings.Contains(paragraph, "`"+scope+"`") {
					missing = append(missing, scope)
				}
			}
			if len(missing) <= len(scopes)/2 {
				lists++
			}
			if n := len(missing); n > 0 && n <= len(scopes)/2 {
				t.Errorf("%s lists scopes without %s: %s", path, strings.Join(missing, ", "), paragraph)
			}
		}
	}
	if lists < 2 {
		t.Errorf("found only %d lists", lists)
	}
}
