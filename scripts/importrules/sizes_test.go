package importrules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// maxPackageStatements bounds the statements of a package without tests and generated files. Statements are counted
	// and not lines, so that nobody packs lines or leaves out empty ones to stay below the bound.
	maxPackageStatements = 1200
	// maxExported bounds the exported names of a package without methods.
	maxExported = 90
)

// large lists the packages that may exceed maxPackageStatements, with the reason.
var large = map[string]string{
	"scripts/sim":         "a simulation of the whole product is one subject",
	"scripts/providersim": "a program that simulates five formats, not imported by the product",
}

// packageSize is the size of one package.
type packageSize struct{ statements, exported int }

// TestPackagesAreSmall keeps packages small enough to be read as a whole.
func TestPackagesAreSmall(t *testing.T) {
	t.Parallel()
	sizes := packageSizes(t)
	for dir, s := range sizes {
		if s.statements > maxPackageStatements && large[dir] == "" {
			t.Errorf("%s has %d statements; at most %d", dir, s.statements, maxPackageStatements)
		}
		if s.exported > maxExported {
			t.Errorf("%s has %d exported names; at most %d", dir, s.exported, maxExported)
		}
	}
	for dir := range large {
		if sizes[dir].statements <= maxPackageStatements {
			t.Errorf("%s is not large any more: remove it from the list", dir)
		}
	}
}

// minTested is from how many lines on a package of the product has tests in its folder, so that a change of it is tested by
// itself, and a reader finds examples of its use.
const minTested = 200

// testedElsewhere are packages without tests of their own, with the reason.
var testedElsewhere = map[string]string{
	"controlplane/internal/httpapi/gen": "by every test of the admin API: it is the part of the generated server that is written by hand",
	"shared/platform/apidoc/apitest":    "it is part of the tests of both APIs",
}

func TestPackagesHaveTestsBesideThem(t *testing.T) {
	t.Parallel()
	lines := map[string]int{}
	eachFile(t, func(path string, set *token.FileSet, file *ast.File) {
		lines[filepath.Dir(path)] += set.Position(file.FileEnd).Line
	})
	for dir, n := range lines {
		if n < minTested || strings.HasPrefix(dir, "scripts") || isUnder(product+dir, append([]string{testkit}, testPackages...)) {
			continue
		}
		tests, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if (len(tests) == 0) != (testedElsewhere[dir] != "") {
			t.Errorf("%s has %d lines and %d files of tests, and is tested elsewhere: %q", dir, n, len(tests), testedElsewhere[dir])
		}
	}
}

// packageSizes measures every package of the repository by its folder.
func packageSizes(t *testing.T) map[string]packageSize {
	t.Helper()
	sizes := map[string]packageSize{}
	eachFile(t, func(path string, _ *token.FileSet, file *ast.File) {
		dir := filepath.Dir(path)
		s := sizes[dir]
		s.statements += statements(file)
		s.exported += exported(file)
		sizes[dir] = s
	})
	return sizes
}

// eachFile calls visit with each Go file of the repository that is neither a test nor generated. Paths begin at the root.
func eachFile(t *testing.T, visit func(path string, set *token.FileSet, file *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		visit(relative, set, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// statements counts the statements of a file, blocks not included.
func statements(file *ast.File) (n int) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch node.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		case ast.Stmt:
			n++
		}
		return true
	})
	return n
}

// exported counts the exported package-level names of a file.
func exported(file *ast.File) (n int) {
	for _, declared := range file.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				n++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						n++
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							n++
						}
					}
				}
			}
		}
	}
	return n
}
