package chart

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "write the generated parts of the chart")

// checkGenerated compares a file with its wanted text, or writes it.
func checkGenerated(t *testing.T, file, want string) {
	t.Helper()
	got, err := os.ReadFile(chartDir + "/" + file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date: run go test ./scripts/chart -run ReferenceIsUpToDate -update", file)
	}
	if err := os.WriteFile(chartDir+"/"+file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The README lists every value with its default and its description.
func TestValuesReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| value | default | meaning |\n| --- | --- | --- |\n")
	writeValues(t, &table, document.Content[0], "")
	readme, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin values -->\n", "<!-- end values -->\n"
	before, rest, hasBegin := strings.Cut(string(readme), begin)
	_, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatal("the README has no section for the values")
	}
	checkGenerated(t, "README.md", before+begin+table.String()+end+after)
}

// writeValues writes a row for each value of a map. A map has a row without a default, before those of its values.
func writeValues(t *testing.T, table *strings.Builder, node *yaml.Node, prefix string) {
	t.Helper()
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		_, meaning, _ := strings.Cut(key.HeadComment, "# -- ")
		meaning = strings.ReplaceAll(strings.ReplaceAll(meaning, "\n# ", " "), "|", `\|`)
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			fmt.Fprintf(table, "| `%s%s` | | %s |\n", prefix, key.Value, meaning)
			writeValues(t, table, value, prefix+key.Value+".")
			continue
		}
		var content any
		if err := value.Decode(&content); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(table, "| `%s%s` | `%s` | %s |\n", prefix, key.Value, text, meaning)
	}
}

// The templates have the settings of both programs, so that the chart refuses others.
func TestSettingsOfTheTemplatesReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("{{/* Generated: the settings of the programs with their types. Run make generate after a change. */}}\n")
	for _, plane := range planes {
		fmt.Fprintf(&text, "\n{{- define \"modelgateway.settings.%s\" -}}\n", plane)
		types := settingTypes(t, plane)
		for _, key := range slices.Sorted(maps.Keys(types)) {
			fmt.Fprintf(&text, "%s: %s\n", key, types[key])
		}
		text.WriteString("{{- end }}\n")
	}
	checkGenerated(t, "templates/_settings.tpl", text.String())
}
