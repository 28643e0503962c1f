package importrules

import (
	"strings"
	"testing"
)

// testPackages are packages of a plane that only tests import. They may import the
// test kit and skip the layers.
var testPackages = []string{
	product + "controlplane/internal/postgres/pgtest",
	product + "controlplane/internal/postgres/storetest",
	product + "controlplane/internal/httpapi/servertest",
	product + "controlplane/internal/console/consoletest",
}

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

// Releases of any age share the contract and the schema, so these must not depend on a
// version of a third-party module. The platform is not part of the contract, which does
// not depend on it.
func TestSharedAndMigrationsImportTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	packages := load(t)
	for path, p := range packages {
		if !isUnder(path, []string{product + "shared", product + "migrations"}) || isUnder(path, []string{platform}) {
			continue
		}
		for _, dep := range p.Deps {
			if !packages[dep].Standard && (!isUnder(dep, []string{product + "shared"}) || isUnder(dep, []string{platform})) {
				t.Errorf("%s depends on %s", path, dep)
			}
		}
	}
}

// The module platform is not specific to the product, so it imports nothing of it, but for the servers that the test kit starts
// as the contract demands.
func TestPlatformImportsNothingOfTheProduct(t *testing.T) {
	t.Parallel()
	for path, p := range load(t) {
		if !isUnder(path, []string{platform}) || isUnder(path, []string{testkit}) {
			continue
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, product) && !isUnder(dep, []string{platform}) || isUnder(dep, []string{testkit}) {
				t.Errorf("%s depends on %s", path, dep)
			}
		}
	}
}

// A program that imports the client of the admin API gets no further dependencies.
func TestAdminClientUsesTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	packages := load(t)
	client := []string{product + "controlplane/adminclient"}
	for path, p := range packages {
		if !isUnder(path, client) {
			continue
		}
		for _, dep := range p.Deps {
			if !packages[dep].Standard && !isUnder(dep, client) {
				t.Errorf("%s depends on %s", path, dep)
			}
		}
	}
}

// A production binary must not contain the dev stack or the test kit.
func TestPlanesDoNotImportScriptsOrTheTestKit(t *testing.T) {
	t.Parallel()
	for path, p := range load(t) {
		if isUnder(path, testPackages) {
			continue
		}
		for _, dep := range p.Deps {
			if isUnder(dep, []string{product + "scripts"}) || isUnder(dep, []string{testkit}) && !isUnder(path, []string{testkit}) {
				t.Errorf("%s depends on %s", path, dep)
			}
		}
	}
}

func TestDataplaneDoesNotImportSQL(t *testing.T) {
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
		// Only the direct imports: the Prometheus client imports database/sql for a
		// collector that the data plane does not use.
		for _, imported := range p.Imports {
			if imported == "database/sql" {
				t.Errorf("%s imports %s", path, imported)
			}
		}
	}
}

func TestImportsOfAPlaneFollowItsLayers(t *testing.T) {
	t.Parallel()
	for path, p := range load(t) {
		plane, kind, name := place(path)
		if plane == "" || isUnder(path, testPackages) {
			continue
		}
		for _, imported := range p.Imports {
			if violation := checkImport(layerOf(kind, name), name, imported); violation != "" {
				t.Errorf("%s imports %s: %s", path, imported, violation)
			}
		}
	}
}

// The console has no way around the admin API: of the product it imports its own packages, the client of the API, the sessions of
// people, and how the address of a provider is made.
func TestConsoleKnowsOnlyTheAdminAPI(t *testing.T) {
	t.Parallel()
	console := product + "controlplane/internal/console"
	allowed := []string{console, product + "controlplane/adminclient", product + "controlplane/internal/signin", product + "shared/catalogkv"}
	for path, p := range load(t) {
		if !isUnder(path, []string{console}) || isUnder(path, testPackages) {
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, product) && !isUnder(imported, allowed) || isUnder(imported, ioModules) {
				t.Errorf("%s imports %s: the console calls the admin API", path, imported)
			}
		}
	}
}

// checkImport returns the rule that an import in a plane breaks, "" for an allowed
// import. name is the importing package, such as "httpapi".
func checkImport(from layer, name, imported string) string {
	if from == domain && isUnder(imported, ioModules) {
		return "a domain package does no I/O"
	}
	if from < settings && isUnder(imported, []string{platform}) && !isUnder(imported, []string{platform + "/retry", platform + "/apidoc"}) {
		return "only config, app and cmd load settings, serve probes and start components"
	}
	plane, kind, other := place(imported)
	if plane == "" || other == name {
		return ""
	}
	to := layerOf(kind, other)
	switch {
	case to == settings && from < app:
		return "only app and cmd read settings, and pass them on"
	case from == edge && to == edge:
		return "edge packages do not import each other; app connects them"
	case from == command && to == edge:
		return "cmd only starts app"
	case to > from, to == app && from == settings:
		return "imports go down the layers: cmd, app, edge, domain, shared"
	}
	return ""
}

func TestCheckImport(t *testing.T) {
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
		{domain, "key", platform + "/retry", true},
		{domain, "key", platform + "/settings", false},
		{edge, "httpapi", platform + "/ops", false},
		{settings, "config", platform + "/settings", true},
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
		violation := checkImport(tt.from, tt.name, tt.imported)
		if (violation == "") != tt.allowed {
			t.Errorf("%s (layer %d) imports %s: got %q; want allowed: %t", tt.name, tt.from, tt.imported, violation, tt.allowed)
		}
	}
}

// A misspelt module path would leave its packages unchecked.
func TestEveryModuleIsChecked(t *testing.T) {
	t.Parallel()
	packages := load(t)
	for _, module := range modules {
		checked := false
		for path := range packages {
			checked = checked || strings.HasPrefix(path, module)
		}
		if !checked {
			t.Errorf("no package of %s was checked", module)
		}
	}
}
