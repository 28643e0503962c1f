package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// methodsOfOthers are those of interfaces of the standard library and of third parties that types of the product have.
const methodsOfOthers = "Collect Error InProcessConn RoundTrip ServeHTTP SetReadDeadline Value"

// TestExportedMethodsSayWhatTheyDo: an exported method has a comment, unless it is one of an interface, whose comment says what it does.
func TestExportedMethodsSayWhatTheyDo(t *testing.T) {
	t.Parallel()
	ofInterfaces := map[string]bool{}
	for name := range strings.FieldsSeq(methodsOfOthers) {
		ofInterfaces[name] = true
	}

	missing := map[string]string{}
	for _, path := range files(t, ".go") {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for n := range ast.Preorder(file) {
			if i, ok := n.(*ast.InterfaceType); ok {
				for _, method := range i.Methods.List {
					for _, name := range method.Names {
						ofInterfaces[name.Name] = true
					}
				}
			}
		}
		if ast.IsGenerated(file) || strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv != nil && f.Doc == nil && f.Name.IsExported() && receiver(f).IsExported() {
				missing[path+": "+receiver(f).Name+"."+f.Name.Name] = f.Name.Name
			}
		}
	}

	for method, name := range missing {
		if !ofInterfaces[name] {
			t.Errorf("%s has no comment, and no interface has such a method", method)
		}
	}
}

// receiver returns the name of the type of a method.
func receiver(f *ast.FuncDecl) *ast.Ident {
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	name, _ := of.(*ast.Ident)
	return name
}
