package importrules

import (
	"go/ast"
	"go/token"
	"testing"
)

// largeLiteral is the number of fields from which each field of a literal has a line of its own.
const largeLiteral = 4

// TestFieldsOfLargeLiteralsHaveALineEach keeps literals readable: a reader finds a field at the beginning of a line, and a change of
// one field is a change of one line. A row of a table, whose type stands above it, may stay on one line.
func TestFieldsOfLargeLiteralsHaveALineEach(t *testing.T) {
	t.Parallel()
	eachFile(t, func(path string, set *token.FileSet, file *ast.File) {
		rows := map[ast.Node]bool{}
		ast.Inspect(file, func(node ast.Node) bool {
			literal, ok := node.(*ast.CompositeLit)
			if !ok {
				return true
			}
			for _, element := range literal.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					element = pair.Value
				}
				if row, ok := element.(*ast.CompositeLit); ok && row.Type == nil {
					rows[row] = true
				}
			}
			if !rows[literal] && namedFields(literal) >= largeLiteral && !lineEach(set, literal) {
				t.Errorf("%s:%d: a literal of %d fields needs a line for each", path, set.Position(literal.Pos()).Line, len(literal.Elts))
			}
			return true
		})
	})
}

// namedFields counts the fields of a literal of a struct; a literal of another type has none.
func namedFields(literal *ast.CompositeLit) int {
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return 0
		}
		if _, ok := pair.Key.(*ast.Ident); !ok {
			return 0
		}
	}
	return len(literal.Elts)
}

// lineEach reports whether no two fields of a literal share a line.
func lineEach(set *token.FileSet, literal *ast.CompositeLit) bool {
	end := literal.Lbrace
	for _, element := range literal.Elts {
		if set.Position(end).Line == set.Position(element.Pos()).Line {
			return false
		}
		end = element.End()
	}
	return set.Position(end).Line != set.Position(literal.Rbrace).Line
}
