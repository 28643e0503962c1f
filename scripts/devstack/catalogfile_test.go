package devstack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExpandReplacesVariables(t *testing.T) {
	t.Parallel()
	values := map[string]string{"KEY": "sk-1", "URL": "http://127.0.0.1:1", "EMPTY": "", "QUOTED": `a"b`, "LINES": "a\nb: c"}
	lookup := func(name string) (string, bool) { value, ok := values[name]; return value, ok }
	tests := []struct {
		name, text, want, wantErr string
	}{
		{name: "nothing", text: "a: b\n", want: "a: b\n"},
		{name: "values", text: "a: \"${KEY}\"\nb: ${URL}/x ${KEY}", want: "a: \"sk-1\"\nb: http://127.0.0.1:1/x sk-1"},
		{name: "comment", text: "  # put ${NOT_THERE} here\na: b", want: "  # put ${NOT_THERE} here\na: b"},
		{name: "other dollars", text: "a: $KEY $$ ${} ${1}", want: "a: $KEY $$ ${} ${1}"},
		{name: "all missing variables", text: "a: ${Z}${KEY}\nb: ${A} ${Z} ${EMPTY}", wantErr: "variable A, EMPTY, Z first"},
		{name: "quote", text: `a: "${QUOTED}"`, wantErr: "QUOTED"},
		{name: "line break", text: "a: ${LINES}", wantErr: "LINES"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := expand(tt.text, lookup)
			if got != tt.want || (err != nil) != (tt.wantErr != "") {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("got %v; want it to contain %q", err, tt.wantErr)
			}
		})
	}
}

func TestLoadCatalog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, want := range map[string]string{"a.yaml": "application/yaml", "a.yml": "application/yaml", "a.json": "application/json"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("x: ${V}"), 0o600); err != nil {
			t.Fatal(err)
		}
		text, mediaType, err := loadCatalog(file, func(string) (string, bool) { return "y", true })
		if text != "x: y" || mediaType != want || err != nil {
			t.Errorf("%s: got %q, %q, %v; want %q", name, text, mediaType, err, want)
		}
	}
	if _, _, err := loadCatalog(filepath.Join(dir, "none.yaml"), os.LookupEnv); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("got %v; want the name of the missing file", err)
	}
}

func TestCatalogsOfTheRepositoryExpand(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../catalog/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("got %q, %v; want the demo and the examples", files, err)
	}
	for _, file := range files {
		var asked []string
		_, _, err := loadCatalog(file, func(name string) (string, bool) {
			asked = append(asked, name)
			return "value", true
		})
		if err != nil || len(asked) == 0 {
			t.Errorf("%s: asked for %q, %v; want a key or URL from the environment", file, asked, err)
		}
	}
}
