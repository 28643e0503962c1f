// Package importrules tests the rules about imports between packages, with the dependency
// graph that `go list` reports. The linter checks most of the rules, too (depguard in
// .golangci.yaml); these tests also detect indirect imports and new packages.
package importrules

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// A pkg is one package in the output of `go list -json`.
type pkg struct {
	ImportPath string
	Standard   bool
	// Imports are the direct imports, Deps all, neither with those of test files.
	Imports []string
	Deps    []string
}

// load returns the packages of the modules and all their dependencies by import path.
func load(t *testing.T) map[string]pkg {
	t.Helper()
	args := []string{"list", "-deps", "-json=ImportPath,Standard,Imports,Deps"}
	for _, module := range modules {
		args = append(args, module+"/...")
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	packages := map[string]pkg{}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

const product = "modelgateway/"

var modules = []string{product + "controlplane", product + "dataplane", product + "migrations", product + "shared"}

// platform is a module with code that both planes use. It is not specific to the product and not part of the contract.
const platform = product + "shared/platform"

// testkit has the servers of tests.
const testkit = platform + "/testkit"

// edges are the packages that do the I/O of a plane. Only app connects them.
var edges = []string{"httpapi", "console", "bus", "upstream", "spool", "postgres", "webhooksender"}

// ioModules may be imported by edge packages, config, app and cmd.
var ioModules = []string{
	"github.com/labstack/echo", "github.com/jackc/pgx", "github.com/nats-io/", "github.com/spf13/viper",
	"github.com/pressly/goose", "database/sql",
}

// place splits the import path of a plane's package: it returns "controlplane",
// "internal" and "postgres" for modelgateway/controlplane/internal/postgres/sqlcgen.
// For a package outside the planes it returns empty strings.
func place(path string) (plane, kind, name string) {
	rest, ok := strings.CutPrefix(path, product)
	parts := strings.SplitN(rest, "/", 4)
	if !ok || (parts[0] != "controlplane" && parts[0] != "dataplane") {
		return "", "", ""
	}
	parts = append(parts, "", "")
	return parts[0], parts[1], parts[2]
}

func isUnder(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return path == prefix || strings.HasPrefix(path, strings.TrimSuffix(prefix, "/")+"/")
	})
}

// A layer orders the packages of a plane. A package imports packages of lower layers,
// its own subpackages and, if it is a domain package, other domain packages.
type layer int

const (
	domain layer = iota
	edge
	settings
	app
	command
)

func layerOf(kind, name string) layer {
	switch {
	case kind == "cmd":
		return command
	case kind != "internal": // the admin API client, which every package may import
		return domain
	case name == "app":
		return app
	case name == "config":
		return settings
	case slices.Contains(edges, name):
		return edge
	default:
		return domain
	}
}

// A package in shared has a name of its own, but for session: the proxy's package runs
// the state machines of the shared one.
func TestSharedPackagesHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	inPlane := map[string]string{}
	packages := load(t)
	for p := range packages {
		if plane, kind, _ := place(p); plane != "" && kind == "internal" {
			inPlane[path.Base(p)] = p
		}
	}
	for p := range packages {
		if other := inPlane[path.Base(p)]; strings.HasPrefix(p, product+"shared/") && other != "" && path.Base(p) != "session" {
			t.Errorf("%s has the name of %s", p, other)
		}
	}
}

// The documents that explain the layers list the edge packages of the rules.
func TestDocumentsListTheEdgePackages(t *testing.T) {
	t.Parallel()
	list := "`" + strings.Join(edges, "`, `") + "`"
	for _, doc := range []string{"../../CONTRIBUTING.md", "../../docs/architecture.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), list) {
			t.Errorf("%s does not list the edge packages: %s", doc, list)
		}
	}
}
