package catalog

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"modelgateway/shared/catalogkv"
)

// variable is a variable of an example.
var variable = regexp.MustCompile(`\$\{\w+\}`)

// The examples are what operators begin with.
func TestExampleCatalogsAreValidAndShowOverrides(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../scripts/catalog/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("got %v, %v", files, err)
	}
	shown := map[string]bool{}
	show := func(all map[catalogkv.Format]catalogkv.Params) {
		for _, params := range all {
			for name := range params {
				shown[name] = true
			}
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		document := parse(t, variable.ReplaceAllString(string(text), "http://127.0.0.1:1"))
		if _, err := document.target(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, m := range document.Models {
			show(m.Params)
			for _, r := range m.Routes {
				show(r.Params)
			}
		}
	}
	for _, name := range []string{"enable_thinking", "thinking", "chat_template_kwargs", "reasoning", "top_k", "plugins", "response_format"} {
		if !shown[name] {
			t.Errorf("no example shows an override of %s", name)
		}
	}
}
