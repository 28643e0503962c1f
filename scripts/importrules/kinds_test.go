package importrules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kindPlaces are the files that name the kinds of usage one by one, with the reason (docs/decisions/0034). Everything else loops
// over price.Kinds. The tests beside these files compare them with that list.
var kindPlaces = map[string]string{
	"shared/price/usage.go": "the members of a usage",
	"shared/price/sheet.go": "the lines of a price sheet",
	"shared/price/kind.go":  "the list",
	"shared/price/cost.go":  "the names of the lines",

	"dataplane/internal/usagereport/parts.go":   "what a format reports",
	"dataplane/internal/usagereport/normal.go":  "which counts are a part of others",
	"dataplane/internal/httpapi/meter/meter.go": "the help of a metric",

	"migrations/00001_initial.sql":                       "columns of the roll-ups",
	"controlplane/internal/postgres/query/settle.sql":    "columns of the roll-ups",
	"controlplane/internal/postgres/query/total.sql":     "columns of the roll-ups",
	"controlplane/internal/postgres/moneystore/sum.go":   "columns of the roll-ups",
	"controlplane/internal/postgres/usagestore/total.go": "columns of the roll-ups",
	"controlplane/internal/usage/total.go":               "the sums of a total",

	"controlplane/api/openapi.yaml":                     "members of the admin API",
	"controlplane/internal/httpapi/billingapi/total.go": "members of the admin API",
	"controlplane/internal/catalog/document.go":         "members of the catalog file",
	"controlplane/internal/catalog/price.go":            "members of the catalog file",
	"controlplane/internal/pricelist/price.go":          "members of the price list of others",
	"controlplane/internal/console/priceform/lines.go":  "what people read; the console knows the admin API only",
	"controlplane/internal/console/parts.go":            "an example of a form",
}

// aKind is one of the kinds, in each spelling.
var aKind = regexp.MustCompile(`\b(audio_in|AudioIn)\b`)

func TestKindsOfUsageAreNamedInFewPlaces(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || name == "docs") {
			return filepath.SkipDir
		}
		if d.IsDir() || strings.HasSuffix(name, "_test.go") || !slices.Contains([]string{".go", ".sql", ".yaml", ".gohtml", ".js"}, filepath.Ext(name)) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if aKind.Match(text) && !strings.HasPrefix(string(text), "// Code generated") {
			relative, err := filepath.Rel(root, path)
			found[filepath.ToSlash(relative)] = err == nil
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range found {
		if kindPlaces[path] == "" {
			t.Errorf("%s names a kind of usage: loop over price.Kinds", path)
		}
	}
	for path := range kindPlaces {
		if !found[path] {
			t.Errorf("%s names no kind of usage any more: remove it from the list", path)
		}
	}
}
