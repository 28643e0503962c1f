package docs

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const logsPath = "docs/logs.md"

// logLine is a kind of line that the programs log.
type logLine struct {
	message        string
	levels, fields []string
}

// levelOf has the level of a logger's method. Methods that take the level are empty.
var levelOf = map[string]string{
	"Debug": "debug", "Info": "info", "Warn": "warn", "Error": "error",
	"DebugContext": "debug", "InfoContext": "info", "WarnContext": "warn", "ErrorContext": "error",
	"Log": "", "LogAttrs": "", "Line": "",
}

// linesOf returns the log lines of the files below a folder, sorted by message.
func linesOf(t *testing.T, folder string) []logLine {
	t.Helper()
	found := map[string]*logLine{}
	for _, path := range files(t, ".go") {
		if !strings.HasPrefix(path, folder+"/") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/gwctl/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			for n := range ast.Preorder(function) {
				if call, ok := n.(*ast.CallExpr); ok {
					for _, line := range linesIn(call, function) {
						if found[line.message] == nil {
							found[line.message] = &logLine{message: line.message}
						}
						have := found[line.message]
						have.levels, have.fields = append(have.levels, line.levels...), append(have.fields, line.fields...)
					}
				}
			}
		}
	}
	var lines []logLine
	for _, line := range found {
		line.levels, line.fields = sortedOnce(line.levels), sortedOnce(line.fields)
		lines = append(lines, *line)
	}
	slices.SortFunc(lines, func(a, b logLine) int { return cmp.Compare(a.message, b.message) })
	return lines
}

func sortedOnce(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// linesIn returns the log lines of a call: one for each text that its message may be.
func linesIn(call *ast.CallExpr, function *ast.FuncDecl) []logLine {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !isLogger(method.X) {
		return nil
	}
	level, ok := levelOf[method.Sel.Name]
	if !ok {
		return nil
	}
	var messages []string
	at := slices.IndexFunc(call.Args, func(e ast.Expr) bool { return textOf(e) != "" })
	for i, arg := range call.Args { // the message is a text, or a variable with one of several
		if name, isName := arg.(*ast.Ident); isName && (at < 0 || i < at) {
			if texts := assigned(function, name.Name, textOf); len(texts) > 0 {
				messages, at = texts, i
				break
			}
		}
	}
	if len(messages) == 0 && at >= 0 {
		messages = []string{textOf(call.Args[at])}
	}
	levels := []string{level}
	if level == "" {
		levels = nil
		for n := range ast.Preorder(function) {
			if e, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(e.Sel.Name, "Level") && len(e.Sel.Name) > len("Level") {
				levels = append(levels, strings.ToLower(strings.TrimPrefix(e.Sel.Name, "Level")))
			}
		}
	}
	var lines []logLine
	for _, message := range messages {
		lines = append(lines, logLine{message, levels, fieldsOf(call, at, function)})
	}
	return lines
}

// isLogger reports whether an expression is a logger, by its name.
func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "log" || e.Name == "logger"
	case *ast.SelectorExpr:
		return e.Sel.Name == "log" || e.Sel.Name == "Log" || e.Sel.Name == "Access"
	}
	return false
}

// assigned returns what the assignments of a function to a variable yield.
func assigned(function *ast.FuncDecl, name string, text func(ast.Expr) string) []string {
	var all []string
	for n := range ast.Preorder(function) {
		a, ok := n.(*ast.AssignStmt)
		if !ok || len(a.Lhs) != len(a.Rhs) {
			continue
		}
		for i, left := range a.Lhs {
			if id, ok := left.(*ast.Ident); ok && id.Name == name && text(a.Rhs[i]) != "" {
				all = append(all, text(a.Rhs[i]))
			}
		}
	}
	return all
}

// fieldsOf returns the names of the fields after the message. If the call gets them in a variable,
// they are those of the function.
func fieldsOf(call *ast.CallExpr, at int, function *ast.FuncDecl) []string {
	var fields []string
	attributes := func(within ast.Node) {
		for n := range ast.Preorder(within) {
			if c, ok := n.(*ast.CallExpr); ok && len(c.Args) >= 2 {
				if s, ok := c.Fun.(*ast.SelectorExpr); ok {
					if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "slog" && textOf(c.Args[0]) != "" {
						fields = append(fields, textOf(c.Args[0]))
					}
				}
			}
		}
	}
	for i := at + 1; i < len(call.Args); i++ {
		switch arg := call.Args[i].(type) {
		case *ast.BasicLit: // a name, followed by its value
			fields = append(fields, textOf(arg))
			i++
		case *ast.Ident:
			attributes(function)
		default:
			attributes(arg)
		}
	}
	return fields
}

// TestLogReferenceIsUpToDate: docs/logs.md lists the lines that the programs log.
func TestLogReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	stored := read(t, logsPath)
	want := stored
	for folder, least := range map[string]int{"dataplane": 40, "controlplane": 40, "shared": 3} {
		lines := linesOf(t, folder)
		if len(lines) < least {
			t.Errorf("found only %d log lines of %s", len(lines), folder)
		}
		var table strings.Builder
		table.WriteString("| message | level | fields |\n| --- | --- | --- |\n")
		for _, l := range lines {
			fields := ""
			if len(l.fields) > 0 {
				fields = "`" + strings.Join(l.fields, "`, `") + "`"
			}
			fmt.Fprintf(&table, "| %s | %s | %s |\n", l.message, strings.Join(l.levels, ", "), fields)
		}
		want = withSection(t, logsPath, want, folder, table.String())
	}
	if want == stored {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date: run go test ./scripts/docs -run Reference -update", logsPath)
	}
	if err := os.WriteFile(filepath.Join(root, logsPath), []byte(want), 0o600); err != nil { // it exists and keeps its mode
		t.Fatal(err)
	}
}

// withSection returns a document with another generated section.
func withSection(t *testing.T, path, text, section, content string) string {
	t.Helper()
	before, rest, begins := strings.Cut(text, "<!-- begin "+section+" -->\n")
	_, after, ends := strings.Cut(rest, "<!-- end "+section+" -->")
	if !begins || !ends {
		t.Fatalf("%s has no section %s", path, section)
	}
	return before + "<!-- begin " + section + " -->\n" + content + "<!-- end " + section + " -->" + after
}
