package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/scripts/sbom"
)

// programs are those of make sbom.
var programs = []string{"./controlplane/cmd/controlplane", "./controlplane/cmd/gwctl", "./dataplane/cmd/dataplane"}

const root = "../../.."

// document has the members of a CycloneDX document that the tests read.
type document struct {
	Schema       string `json:"$schema"`
	BOMFormat    string
	SpecVersion  string
	SerialNumber string
	Version      int
	Metadata     struct {
		Timestamp string
		Component component
	}
	Components   []component
	Dependencies []struct {
		Ref       string
		DependsOn []string
	}
}

type component struct {
	BOMRef  string `json:"bom-ref"` //nolint:tagliatelle // the name of CycloneDX
	Type    string
	Name    string
	Version string
	PURL    string
	Hashes  []struct{ Alg, Content string }
}

// write runs the command and returns its documents by the name of the program.
func write(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	if err := run(append([]string{"-root", root, "-out", dir, "-version", "v1.2.3", "-time", "2026-01-02T03:04:05Z"}, programs...)); err != nil {
		t.Fatal(err)
	}
	documents := map[string][]byte{}
	for _, program := range programs {
		name := path.Base(program)
		content, err := os.ReadFile(filepath.Join(dir, name+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		documents[name] = content
	}
	return documents
}

func parse(t *testing.T, content []byte) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDocumentsListTheModulesOfTheBuiltPrograms(t *testing.T) {
	documents := write(t)
	dir := t.TempDir()
	for _, program := range programs {
		module, pkg, err := sbom.Module(root, program)
		if err != nil {
			t.Fatal(err)
		}
		build := exec.Command("go", "build", "-o", dir+"/", pkg)
		build.Dir, build.Env = module, append(os.Environ(), "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for name, content := range documents {
		out, err := exec.Command("go", "version", "-m", filepath.Join(dir, name)).Output()
		if err != nil {
			t.Fatal(err)
		}
		// The first line ends with the version of Go, which is that of the standard library.
		first, lines, _ := strings.Cut(string(out), "\n")
		_, version, _ := strings.Cut(first, ": go")
		built := []string{"std " + version}
		for line := range strings.Lines(lines) {
			// dep PATH VERSION [SUM]; the version of this repository's modules is that of the option.
			fields := strings.Fields(line)
			if len(fields) < 3 || fields[0] != "dep" && fields[0] != "mod" {
				continue
			}
			if strings.HasPrefix(fields[1], "modelgateway/") {
				fields[2] = "v1.2.3"
			}
			built = append(built, fields[1]+" "+fields[2])
		}
		var listed []string
		for _, c := range parse(t, content).Components {
			listed = append(listed, c.Name+" "+c.Version)
		}
		slices.Sort(built)
		slices.Sort(listed)
		if diff := cmp.Diff(built, listed); diff != "" {
			t.Errorf("%s (-in the program +in the document):\n%s", name, diff)
		}
	}
}

func TestDocumentsHaveWhatCycloneDXRequires(t *testing.T) {
	for name, content := range write(t) {
		d := parse(t, content)
		if d.BOMFormat != "CycloneDX" || d.SpecVersion != "1.6" || !strings.Contains(d.Schema, "bom-1.6") || d.Version != 1 {
			t.Errorf("%s: head is %s %s %s %d", name, d.BOMFormat, d.SpecVersion, d.Schema, d.Version)
		}
		if !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(d.SerialNumber) {
			t.Errorf("%s: serial number %s", name, d.SerialNumber)
		}
		if d.Metadata.Timestamp != "2026-01-02T03:04:05Z" || d.Metadata.Component.Name != name || d.Metadata.Component.Type != "application" {
			t.Errorf("%s: metadata %+v", name, d.Metadata)
		}
		refs := map[string]bool{d.Metadata.Component.BOMRef: true}
		for _, c := range d.Components {
			if refs[c.BOMRef] || c.BOMRef == "" || c.Type == "" || c.Name == "" || c.Version == "" || !strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@") {
				t.Errorf("%s: component %+v", name, c)
			}
			refs[c.BOMRef] = true
			ours := c.Name == sbom.StandardLibrary || strings.HasPrefix(c.Name, "modelgateway/")
			if hashed := len(c.Hashes) == 1 && c.Hashes[0].Alg == "SHA-256" && len(c.Hashes[0].Content) == 64; hashed == ours {
				t.Errorf("%s: hashes of %s are %v", name, c.Name, c.Hashes)
			}
		}
		reached := map[string]bool{d.Metadata.Component.BOMRef: true}
		for _, dependency := range d.Dependencies {
			if !refs[dependency.Ref] {
				t.Errorf("%s: dependencies of %s, which is no component", name, dependency.Ref)
			}
			for _, ref := range dependency.DependsOn {
				reached[ref] = true
			}
		}
		if diff := cmp.Diff(refs, reached); diff != "" {
			t.Errorf("%s: components that nothing depends on (-) and dependencies that are no component (+):\n%s", name, diff)
		}
	}
}

func TestTheSameCommitMakesTheSameDocuments(t *testing.T) {
	first, second := write(t), write(t)
	for name := range first {
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("two runs wrote different documents for %s", name)
		}
	}
}

func TestAPackageThatIsNoProgramIsRefused(t *testing.T) {
	err := run([]string{"-root", root, "-out", t.TempDir(), "-version", "v1.2.3", "-time", "2026-01-02T03:04:05Z", "./shared/money"})
	if err == nil || !strings.Contains(err.Error(), "not a program") {
		t.Errorf("error is %v", err)
	}
}
