package importrules

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sequentialList finds the packages in the Makefile that run without the race detector.
var sequentialList = regexp.MustCompile(`(?m)^sequential := ((?:.*\\\n)*.*)$`)

// startsGoroutines are packages in which goroutines are no reason for the race detector.
var startsGoroutines = map[string]string{
	"modelgateway/scripts/sim":                   "each goroutine simulates a world of its own",
	"modelgateway/controlplane/internal/account": "price lists use its types only",
}

// listed is a package in the output of `go list -test`. GoFiles of the variants for tests have the files of the tests.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
}

// TestPackagesWithoutTheRaceDetectorStartNoGoroutines looks for goroutines in the packages, in their tests, and in all packages of
// the product that these import.
func TestPackagesWithoutTheRaceDetectorStartNoGoroutines(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := sequentialList.FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no list of packages without the race detector")
	}

	seen := 0
	for _, p := range withTests(t, root, strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " "))) {
		name, _, _ := strings.Cut(p.ImportPath, " ")
		name = strings.TrimSuffix(name, "_test")
		if !strings.HasPrefix(name, product) || strings.HasSuffix(name, ".test") || startsGoroutines[name] != "" {
			continue
		}
		for _, file := range p.GoFiles {
			seen++
			if found := goroutine(t, filepath.Join(p.Dir, file)); found != "" {
				t.Errorf("%s: %s: the tests of %s need the race detector", file, found, name)
			}
		}
	}
	if seen < 200 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// withTests returns packages with their tests, and all that these import.
func withTests(t *testing.T, root string, patterns []string) (packages []listed) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles"}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// goroutine says how a file starts a goroutine; empty if it does not.
func goroutine(t *testing.T, path string) (found string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = "a go statement"
		case *ast.SelectorExpr: // of a wait group or an error group, of a timer, or of a server
			if name := n.Sel.Name; name == "Go" || name == "AfterFunc" || name == "NewServer" || name == "ListenAndServe" {
				found = name
			}
		}
		return true
	})
	return found
}
