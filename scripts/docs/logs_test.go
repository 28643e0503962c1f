package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocumentedFieldsOfLogLinesAreThoseOfTheCode compares the tables in docs/logs.md with the attributes that the
// functions write.
func TestDocumentedFieldsOfLogLinesAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/logs.md")
	for section, from := range map[string]struct{ file, function string }{
		"request":       {"dataplane/internal/httpapi/finished/finished.go", "Log"},
		"admin request": {"controlplane/internal/httpapi/middleware.go", "requestLog"},
	} {
		_, table, found := strings.Cut(text, "<!-- begin "+section+" -->")
		table, _, ended := strings.Cut(table, "<!-- end "+section+" -->")
		if !found || !ended {
			t.Fatalf("docs/logs.md has no table %q", section)
		}
		if diff := cmp.Diff(attributesOf(t, from.file, from.function), documentedFields(table)); diff != "" {
			t.Errorf("docs/logs.md, fields of %q (-code +document):\n%s", section, diff)
		}
	}
}

var fieldName = regexp.MustCompile("`([a-z_]+)`")

// documentedFields returns the names in the first column of a table, sorted.
func documentedFields(table string) []string {
	names := map[string]bool{}
	for line := range strings.Lines(table) {
		column, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, name := range fieldName.FindAllStringSubmatch(column, -1) {
			names[name[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// attributesOf returns the keys of the attributes of package slog that a function makes, sorted.
func attributesOf(t *testing.T, path, function string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, declared := range file.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		for n := range ast.Preorder(f) {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				continue
			}
			if of, ok := call.Fun.(*ast.SelectorExpr); ok {
				if name, ok := of.X.(*ast.Ident); ok && name.Name == "slog" {
					keys[textOf(call.Args[0])] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}
