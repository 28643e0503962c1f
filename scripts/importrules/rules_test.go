// Package importrules holds the rules about which package may import which, as
// a test over what the go command says. The linter knows them too
// (.golangci.yaml, depguard) and tells sooner; this test sees what it cannot:
// imports of imports, and packages that nobody classified.
package importrules

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A pkg is what `go list` says about a package.
type pkg struct {
	ImportPath string
	Standard   bool
	// Imports are direct ones, Deps all, both without those of tests.
	Imports []string
	Deps    []string
}

// load lists the packages with everything that they depend on.
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

// edges hold the I/O of a plane; app joins them.
var edges = []string{"httpapi", "bus", "upstream", "spool", "postgres", "ops", "courier"}

// ioModules are those that only edges, config and what stands above may import.
var ioModules = []string{
	"github.com/labstack/echo", "github.com/jackc/pgx", "github.com/nats-io/", "github.com/spf13/viper",
	"github.com/pressly/goose", "database/sql",
}

// place splits the path of a plane's package: "controlplane", "internal",
// "postgres" for modelgateway/controlplane/internal/postgres/sqlcgen. For a
// package that is not in a plane the plane is "".
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

// layer is how far up a package of a plane stands. A package imports only
// packages of lower layers and of its own name, and domain packages each other.
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
	case kind != "internal": // the client of the admin API, for everyone
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
