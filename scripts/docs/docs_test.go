package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// files lists the files of the repository with one of the given extensions,
// relative to its root.
func files(t *testing.T, extensions ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "bin") {
			return filepath.SkipDir
		}
		if !d.IsDir() && slices.Contains(extensions, filepath.Ext(name)) {
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			found = append(found, relative)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// anchor returns the fragment by which a heading is linked, as GitHub forms it.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	return b.String()
}

func TestLinksLeadToFilesAndHeadings(t *testing.T) {
	t.Parallel()
	for _, doc := range files(t, ".md") {
		text := codeBlock.ReplaceAllString(read(t, doc), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := doc
			if target != "" {
				path = filepath.Join(filepath.Dir(doc), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: the target of the link to %s does not exist", doc, m[1])
				continue
			}
			if fragment == "" || filepath.Ext(path) != ".md" {
				continue
			}
			found := slices.ContainsFunc(heading.FindAllStringSubmatch(read(t, path), -1), func(h []string) bool {
				return anchor(h[1]) == fragment
			})
			if !found {
				t.Errorf("%s: there is no heading for the link to %s", doc, m[1])
			}
		}
	}
}

// TestCitedInvariantsAreDefined: every I1 to I10 that code or documents cite is
// defined in docs/protocol/invariants.md.
func TestCitedInvariantsAreDefined(t *testing.T) {
	t.Parallel()
	protocol := read(t, "docs/protocol/invariants.md")
	cited := regexp.MustCompile(`\bI(\d{1,2})\b`)
	for _, path := range files(t, ".go", ".md", ".sql") {
		for _, m := range cited.FindAllString(read(t, path), -1) {
			if !strings.Contains(protocol, "- **"+m+" ") {
				t.Errorf("%s cites %s, which docs/protocol/invariants.md does not define", path, m)
			}
		}
	}
}

// declared maps each package name to the names that packages of that name
// declare, tests included.
func declared(t *testing.T) map[string]map[string]bool {
	t.Helper()
	names := map[string]map[string]bool{}
	for _, path := range files(t, ".go") {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		pkg := strings.TrimSuffix(file.Name.Name, "_test")
		if names[pkg] == nil {
			names[pkg] = map[string]bool{}
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[pkg][d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						names[pkg][spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							names[pkg][name.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}

var quoted = regexp.MustCompile("`([^`]+)`")

// TestGlossaryNamesExist: the last column of the glossary names identifiers,
// packages, tables, columns and settings that exist.
func TestGlossaryNamesExist(t *testing.T) {
	t.Parallel()
	names := declared(t)
	var schema strings.Builder
	for _, path := range files(t, ".sql") {
		if strings.HasPrefix(path, "migrations/") {
			schema.WriteString(read(t, path))
		}
	}
	settings := read(t, "docs/settings.md")
	for line := range strings.Lines(read(t, "docs/glossary.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|") // also empty ones
		if !strings.HasPrefix(line, "|") || len(cells) < 4 {
			continue
		}
		kind := ""
		for part := range strings.SplitSeq(strings.TrimSpace(cells[3]), ", ") {
			if word, _, ok := strings.Cut(part, " `"); ok {
				kind = strings.TrimSuffix(word, "s")
			} else if strings.Contains(part, ".") && kind != "setting" {
				kind = ""
			}
			m := quoted.FindStringSubmatch(part)
			if m == nil {
				continue
			}
			var exists bool
			switch kind {
			case "package":
				exists = names[m[1]] != nil
			case "table":
				exists = regexp.MustCompile(`(?i)create table (if not exists )?` + m[1] + `\b`).MatchString(schema.String())
			case "column":
				exists = regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(schema.String())
			case "setting":
				exists = strings.Contains(settings, "`"+m[1]+"`")
			default:
				pkg, name, _ := strings.Cut(m[1], ".")
				exists = names[pkg][name]
			}
			if !exists {
				t.Errorf("%s: the %s %s does not exist", strings.TrimSpace(cells[0]), kind, m[1])
			}
		}
	}
}

// TestNamedTestsExist: a test that a document names is there.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	names := declared(t)
	exists := func(name string) bool {
		for _, declared := range names {
			if declared[name] {
				return true
			}
		}
		return false
	}
	cited := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*|Benchmark[A-Z][A-Za-z0-9_]*)`")
	for _, path := range files(t, ".md") {
		for _, m := range cited.FindAllStringSubmatch(read(t, path), -1) {
			if !exists(m[1]) {
				t.Errorf("%s: there is no %s", path, m[1])
			}
		}
	}
}

// TestMakeTargetsExist: every target that a document tells the reader to make is
// in the Makefile.
func TestMakeTargetsExist(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	command := regexp.MustCompile("(?m)(?:^ {4}|`|^)(?:[A-Z_]+=\\S+ )*make ((?:[a-z][a-z/]*(?: |`|$))+)")
	for _, path := range files(t, ".md") {
		for _, m := range command.FindAllStringSubmatch(read(t, path), -1) {
			for target := range strings.FieldsSeq(strings.Trim(m[1], "` ")) {
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s: there is no target %s", path, target)
				}
			}
		}
	}
}

// TestNamedPathsExist: a path of the repository that a document names is there.
func TestNamedPathsExist(t *testing.T) {
	t.Parallel()
	path := regexp.MustCompile("`((?:dataplane|controlplane|shared|scripts|deploy|migrations|docs)/[A-Za-z0-9_./-]+)`")
	for _, doc := range files(t, ".md") {
		for _, m := range path.FindAllStringSubmatch(read(t, doc), -1) {
			if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(m[1], "/"))); err != nil {
				t.Errorf("%s: there is no %s", doc, m[1])
			}
		}
	}
}

// TestNamedIdentifiersExist: a name such as `price.Cost` or `spool.Unit.Append` in
// a document is declared by a package of that name. Only the package's own name,
// not that of a method or field, is looked up.
func TestNamedIdentifiersExist(t *testing.T) {
	t.Parallel()
	names := declared(t)
	identifier := regexp.MustCompile("`([a-z][a-z0-9]*)\\.([A-Z]\\w*)[^`]*`")
	for _, doc := range files(t, ".md") {
		for _, m := range identifier.FindAllStringSubmatch(read(t, doc), -1) {
			if names[m[1]] != nil && !names[m[1]][m[2]] {
				t.Errorf("%s: package %s declares no %s", doc, m[1], m[2])
			}
		}
	}
}

// TestPathsInCommandsExist: the packages and files of the commands that a document
// shows are there.
func TestPathsInCommandsExist(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile("(?m)\\bgo (?:test|run|build|vet) [^`\\n]*")
	path := regexp.MustCompile(`(?:^| )\./([A-Za-z0-9_./-]+)`)
	for _, doc := range files(t, ".md") {
		for _, line := range command.FindAllString(read(t, doc), -1) {
			for _, m := range path.FindAllStringSubmatch(line, -1) {
				if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(m[1], "/..."))); err != nil {
					t.Errorf("%s: there is no ./%s", doc, m[1])
				}
			}
		}
	}
}

func TestReadmeLinesAreShort(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(read(t, "README.md")) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 120 && !strings.HasPrefix(line, "|") {
			t.Errorf("the line has %d characters; at most 120: %s", n, line)
		}
	}
}

// A page of the protocol is read at once, and a decision is a page.
func TestPagesOfTheProtocolAndDecisionsAreShort(t *testing.T) {
	t.Parallel()
	for folder, most := range map[string]int{"docs/protocol": 1500, "docs/decisions": 650} {
		for _, path := range files(t, ".md") {
			if words := len(strings.Fields(read(t, path))); filepath.ToSlash(filepath.Dir(path)) == folder && words > most {
				t.Errorf("%s has %d words; at most %d", path, words, most)
			}
		}
	}
}
