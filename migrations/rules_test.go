package migrations_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"modelgateway/migrations"
)

// file is a migration as its statements, without comments.
type file struct {
	name     string
	up, down []string
}

var (
	fileName = regexp.MustCompile(`^[0-9]{5}_[a-z0-9_]+\.sql$`)
	comment  = regexp.MustCompile(`(?m)--.*$`)
	body     = regexp.MustCompile(`(?s)\$\$.*?\$\$`)
	spaces   = regexp.MustCompile(`\s+`)
	made     = regexp.MustCompile(`^create table (?:if not exists )?(\w+)`)
	altered  = regexp.MustCompile(`^alter table (?:if exists )?(?:only )?(\w+)`)
)

// statements splits a part of a migration. The bodies of functions are skipped:
// they run later, on the schema of that time.
func statements(text string) []string {
	text = body.ReplaceAllString(comment.ReplaceAllString(text, ""), "$$$$")
	var found []string
	for statement := range strings.SplitSeq(text, ";") {
		if s := strings.ToLower(strings.TrimSpace(spaces.ReplaceAllString(statement, " "))); s != "" {
			found = append(found, s)
		}
	}
	return found
}

func read(t *testing.T, name, text string) file {
	t.Helper()
	up, down, ok := strings.Cut(text, "\n-- +goose Down\n")
	before, up, begins := strings.Cut("\n"+up, "\n-- +goose Up\n")
	if !ok || !begins || len(statements(before)) > 0 || strings.Contains(down, "+goose Up") || strings.Contains(down, "+goose Down") {
		t.Errorf("%s: want one part +goose Up and one part +goose Down", name)
	}
	f := file{name, statements(up), statements(down)}
	if len(f.up) == 0 || len(f.down) == 0 {
		t.Errorf("%s: a part is empty", name)
	}
	return f
}

func files(t *testing.T) []file {
	t.Helper()
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	found := make([]file, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		found[i] = read(t, name, string(text))
	}
	return found
}

// Migrations run in the order of their numbers. Numbers may be missing, since
// branches are merged in any order, but none occurs twice.
func TestFileNamesAreNumbered(t *testing.T) {
	t.Parallel()
	last := ""
	for _, f := range files(t) {
		if !fileName.MatchString(f.name) {
			t.Errorf("%s: want a name such as 00042_add_regions.sql", f.name)
		}
		if number := f.name[:5]; number == last {
			t.Errorf("%s: another migration has its number", f.name)
		} else {
			last = number
		}
	}
}

// contracting are the statements that a migration must not have: a release runs
// beside the previous one on one schema, so what that one uses must stay.
var contracting = []struct{ action, pattern string }{
	{"drops a table", `^drop table`},
	{"drops a view", `^drop view`},
	{"drops a type", `^drop type`},
	{"empties a table", `^truncate`},
	{"drops a column", `^alter table .*\bdrop column`},
	{"renames", `^alter .*\brename\b`},
	{"changes a type", `^alter table .*\balter (column )?\w+ (set data )?type\b`},
	{"forbids null", `^alter table .*\balter (column )?\w+ set not null`},
	{"drops a default", `^alter table .*\balter (column )?\w+ drop default`},
}

// notNull finds columns that the previous release could not fill.
var notNull = regexp.MustCompile(`add (?:column )?(?:if not exists )?\w+ [^,]*?not null[^,]*`)

// violations lists the statements of a migration that break the previous
// release. Tables that the migration itself creates are exempt.
func violations(f file) []string {
	own := map[string]bool{}
	var found []string
	for _, s := range f.up {
		if m := made.FindStringSubmatch(s); m != nil {
			own[m[1]] = true
		}
		if m := altered.FindStringSubmatch(s); m != nil && own[m[1]] {
			continue
		}
		for _, rule := range contracting {
			if regexp.MustCompile(rule.pattern).MatchString(s) {
				found = append(found, rule.action+": "+s)
			}
		}
		if strings.HasPrefix(s, "alter table") {
			for _, column := range notNull.FindAllString(s, -1) {
				if !strings.Contains(column, " default ") && !strings.Contains(column, " generated ") {
					found = append(found, "adds a column not null without default: "+s)
				}
			}
		}
	}
	return found
}

func TestMigrationsOnlyExpand(t *testing.T) {
	t.Parallel()
	for _, f := range files(t)[1:] { // the first one creates the schema
		for _, violation := range violations(f) {
			t.Errorf("%s: %s", f.name, violation)
		}
	}
}

func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string]int{
		"drop table accounts":                                                       1,
		"alter table accounts drop column name":                                     1,
		"alter table accounts rename column name to title":                          1,
		"alter table accounts rename to customers":                                  1,
		"alter table accounts alter column name type varchar(9)":                    1,
		"alter table accounts alter name set data type varchar(9)":                  1,
		"alter table accounts alter column external_id set not null":                1,
		"alter table accounts add column a text not null":                           1,
		"alter table accounts add a text not null, add b int not null":              2,
		"truncate accounts":                                                         1,
		"alter table accounts add column a text":                                    0,
		"alter table accounts add column a text not null default ''":                0,
		"alter table accounts add column a bigint not null default 1 check (a > 0)": 0,
		"create table new (a int); alter table new alter column a set not null":     0,
		"create function f() returns int as $$ drop table x; $$ language sql":       0,
		"-- drop table accounts":                                                    0,
		"alter table accounts alter column name set default 'x'":                    0,
	} {
		if got := violations(file{up: statements(statement)}); len(got) != want {
			t.Errorf("%s: got %q; want %d violations", statement, got, want)
		}
	}
}
