package customerpages

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
)

// The examples are those that are run with the real clients; the official clients in Python are not.
func TestExamplesAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../../../docs/connect.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		text, err := snippetFiles.ReadFile("snippet/" + e.file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(e.file, ".py") && !bytes.Contains(document, text) {
			t.Errorf("docs/connect.md has no %s", e.file)
		}
	}
}

func TestExamplesAreFilledIn(t *testing.T) {
	t.Parallel()
	all := []adminclient.CatalogRouteFormats{chat, responses, messages, images, videos}
	filled := snippets("http://127.0.0.1:8080", "example-small", all)
	if len(filled) != len(examples) {
		t.Errorf("%d examples for a model with every format; want %d", len(filled), len(examples))
	}
	for _, s := range filled {
		if strings.Contains(s.Text, "HOST") || modelPlace.MatchString(s.Text) || !strings.Contains(s.Text, "example-small") || !strings.Contains(s.Text, "http://127.0.0.1:8080") {
			t.Errorf("%s is not filled in: %s", s.Title, s.Text)
		}
		if s.Title == "Claude Code" && !strings.Contains(s.Text, "export ANTHROPIC_MODEL=example-small") {
			t.Errorf("the variable is not kept: %s", s.Text)
		}
	}
	if few := snippets("", "boat", []adminclient.CatalogRouteFormats{images}); len(few) != 1 || !strings.Contains(few[0].Text, "https://HOST/v1/images") {
		t.Errorf("an image model without a known address has %+v", few)
	}
}
