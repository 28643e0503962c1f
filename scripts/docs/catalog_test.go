package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"modelgateway/shared/platform/apidoc"
)

const catalogPath = "docs/catalog.md"

// TestCatalogReferenceIsUpToDate: docs/catalog.md lists the members of a catalog file, as the document of the admin API has them.
func TestCatalogReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	doc, err := apidoc.Parse([]byte(read(t, "controlplane/api/openapi.yaml")))
	if err != nil {
		t.Fatal(err)
	}

	stored := read(t, catalogPath)
	want := withSection(t, catalogPath, stored, "members", catalogMembers(doc))
	if want == stored {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date: run go test ./scripts/docs -run Reference -update", catalogPath)
	}
	if err := os.WriteFile(filepath.Join(root, catalogPath), []byte(want), 0o600); err != nil { // it exists and keeps its mode
		t.Fatal(err)
	}
}

// catalogMembers describes the schema of the whole catalog, and each that it refers to.
func catalogMembers(doc *apidoc.Document) string {
	var text strings.Builder
	for schemas, at := []string{"CatalogDocument"}, 0; at < len(schemas); at++ {
		name := schemas[at]
		s := doc.Resolve(&apidoc.Schema{Ref: "#/components/schemas/" + name})
		members := doc.Members(s)
		if len(members) == 0 {
			continue
		}

		fmt.Fprintf(&text, "\n### %s\n\n", titleOf(name))
		if s.Description != "" {
			fmt.Fprintf(&text, "%s\n\n", strings.TrimSpace(s.Description))
		}
		text.WriteString("| member | type | meaning |\n| --- | --- | --- |\n")
		for _, m := range members {
			whole := doc.Resolve(m.Schema)
			required := ""
			if m.Required {
				required = ", required"
			}
			kind, inner := kindOf(doc, m.Schema)
			if strings.HasPrefix(inner, "Catalog") && !slices.Contains(schemas, inner) {
				schemas = append(schemas, inner)
			}
			fmt.Fprintf(&text, "| `%s` | %s%s | %s |\n", m.Name, kind, required, meaningOf(doc, whole))
		}
	}
	return text.String() + "\n"
}

// titleOf returns the words of the name of a schema: "Unit price" of CatalogUnitPrice.
func titleOf(schema string) string {
	var words strings.Builder
	for i, r := range strings.TrimPrefix(schema, "Catalog") {
		if i > 0 && r >= 'A' && r <= 'Z' {
			words.WriteByte(' ')
			r += 'a' - 'A'
		}
		words.WriteRune(r)
	}
	return words.String()
}

// kindOf returns the type of a member in words, and the schema of an object or of the entries of a list.
func kindOf(doc *apidoc.Document, s *apidoc.Schema) (kind, inner string) {
	whole := doc.Resolve(s)
	switch {
	case doc.Kind(s) == "array":
		of, inner := kindOf(doc, whole.Items)
		return "list of " + of, inner
	case whole.Name == "Money":
		return "decimal in quotes", ""
	case whole.Name == "CatalogParams":
		return "object of objects of [Param](#param)", "CatalogParam"
	case whole.Name == "CatalogAddresses":
		return "object of [Address](#address)", "CatalogAddress"
	case len(doc.Members(s)) > 0:
		return fmt.Sprintf("[%s](#%s)", titleOf(whole.Name), strings.ToLower(strings.ReplaceAll(titleOf(whole.Name), " ", "-"))), whole.Name
	case doc.Kind(s) == "":
		return "any", ""
	}
	return doc.Kind(s), ""
}

// meaningOf returns the description, values, default and example of a member.
func meaningOf(doc *apidoc.Document, s *apidoc.Schema) string {
	if s.Name == "Money" { // its own description is that of every amount
		return ""
	}

	var parts []string
	if s.Description != "" {
		parts = append(parts, strings.Join(strings.Fields(s.Description), " "))
	}
	values := s.Enum
	if s.Items != nil {
		values = append(values, doc.Resolve(s.Items).Enum...)
	}
	if len(values) > 0 {
		var names []string
		for _, v := range values {
			names = append(names, fmt.Sprintf("`%v`", v))
		}
		parts = append(parts, "One of "+strings.Join(names, ", ")+".")
	}
	if s.Default != nil {
		parts = append(parts, fmt.Sprintf("Default `%v`.", s.Default))
	}
	if len(s.Examples) > 0 {
		parts = append(parts, fmt.Sprintf("Such as `%v`.", s.Examples[0]))
	}
	return strings.ReplaceAll(strings.Join(parts, " "), "|", `\|`)
}
