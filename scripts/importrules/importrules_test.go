package importrules

import (
	"strings"
	"testing"
)

// testPackages are imported by tests only, so they may import what those may.
var testPackages = []string{product + "controlplane/internal/postgres/pgtest"}

func TestPlanesAreSeparate(t *testing.T) {
	t.Parallel()
	for path, p := range load(t) {
		plane, _, _ := place(path)
		for _, dep := range p.Deps {
			if other, _, _ := place(dep); plane != "" && other != "" && plane != other {
				t.Errorf("%s depends on %s of the other plane", path, dep)
			}
		}
	}
}

// The contract and the schema bind programs of any age: they stand on the
// standard library alone.
func TestSharedAndMigrationsUseTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	packages := load(t)
	for path, p := range packages {
		// natstest is a module of its own, so that nobody gets its server who does not test.
		if !isUnder(path, []string{product + "shared", product + "migrations"}) || path == product+"shared/natstest" {
			continue
		}
		for _, dep := range p.Deps {
			if !packages[dep].Standard && !isUnder(dep, []string{product + "shared"}) {
				t.Errorf("%s depends on %s", path, dep)
			}
		}
	}
}

func TestDataplaneKnowsNoSQL(t *testing.T) {
	t.Parallel()
	for path, p := range load(t) {
		if plane, _, _ := place(path); plane != "dataplane" {
			continue
		}
		for _, dep := range p.Deps {
			if isUnder(dep, []string{"github.com/jackc/pgx", product + "migrations"}) {
				t.Errorf("%s depends on %s", path, dep)
			}
		}
		// A metrics library may import it for its own ends; we do not.
		for _, imported := range p.Imports {
			if imported == "database/sql" {
				t.Errorf("%s imports %s", path, imported)
			}
		}
	}
}

func TestLayersOfAPlane(t *testing.T) {
	t.Parallel()
	for path, p := range load(t) {
		plane, kind, name := place(path)
		if plane == "" || isUnder(path, testPackages) {
			continue
		}
		for _, imported := range p.Imports {
			if fault := check(layerOf(kind, name), name, imported); fault != "" {
				t.Errorf("%s imports %s: %s", path, imported, fault)
			}
		}
	}
}

// check returns what is wrong with an import in a plane, "" if nothing is.
func check(from layer, name, imported string) string {
	if from == domain && isUnder(imported, ioModules) {
		return "a domain package does no I/O of its own"
	}
	plane, kind, other := place(imported)
	if plane == "" || other == name {
		return ""
	}
	to := layerOf(kind, other)
	switch {
	case to == settings && from < app:
		return "settings are read by app and cmd, and handed down"
	case from == edge && to == edge:
		return "edges never import one another; app joins them"
	case from == command && to == edge:
		return "cmd only starts app"
	case to > from, to == app && from == settings:
		return "imports point downwards: cmd, app, edge, domain, shared"
	}
	return ""
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const cp = product + "controlplane/internal/"
	tests := []struct {
		from     layer
		name     string
		imported string
		allowed  bool
	}{
		{domain, "key", cp + "account", true},
		{domain, "key", product + "shared/money", true},
		{domain, "key", "log/slog", true},
		{domain, "key", cp + "postgres", false},
		{domain, "key", cp + "config", false},
		{domain, "key", "github.com/jackc/pgx/v5", false},
		{domain, "key", "github.com/nats-io/nats.go", false},
		{domain, "key", "database/sql", false},
		{edge, "httpapi", cp + "key", true},
		{edge, "httpapi", cp + "httpapi/gen", true},
		{edge, "httpapi", "github.com/labstack/echo/v4", true},
		{edge, "httpapi", cp + "postgres", false},
		{edge, "httpapi", cp + "app", false},
		{edge, "bus", cp + "config", false},
		{edge, "httpapi", product + "controlplane/adminclient/optional", true},
		{settings, "config", "github.com/spf13/viper", true},
		{settings, "config", cp + "app", false},
		{app, "app", cp + "postgres", true},
		{app, "app", cp + "config", true},
		{command, "controlplane", cp + "app", true},
		{command, "controlplane", cp + "config", true},
		{command, "controlplane", cp + "postgres", false},
		{command, "gwctl", product + "controlplane/adminclient", true},
	}
	for _, tt := range tests {
		fault := check(tt.from, tt.name, tt.imported)
		if (fault == "") != tt.allowed {
			t.Errorf("%s (layer %d) imports %s: got %q; want allowed: %t", tt.name, tt.from, tt.imported, fault, tt.allowed)
		}
	}
}

func TestEveryModuleIsSeen(t *testing.T) {
	t.Parallel()
	packages := load(t)
	for _, module := range modules {
		seen := false
		for path := range packages {
			seen = seen || strings.HasPrefix(path, module)
		}
		if !seen {
			t.Errorf("no package of %s was checked", module)
		}
	}
}
