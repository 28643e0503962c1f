package api_test

import (
	"regexp"
	"strings"
	"testing"

	"modelgateway/controlplane/api"
	"modelgateway/shared/platform/apidoc"
	"modelgateway/shared/platform/apidoc/apipage"
)

// The page shows every operation, has no dead links, and loads nothing from
// elsewhere.
func TestPage(t *testing.T) {
	t.Parallel()
	site, err := apipage.New(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	page := string(site.Page())
	doc, err := apidoc.Parse(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range doc.Operations {
		if !strings.Contains(page, `<article id="`+op.ID+`">`) {
			t.Errorf("%s is not on the page: its tag %q may not be described", op.ID, op.Tag)
		}
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if ids[id[1]] {
			t.Errorf("id %s is used twice", id[1])
		}
		ids[id[1]] = true
	}
	for _, link := range regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		target := link[1]
		problem, isProblem := strings.CutPrefix(target, "/problems/")
		switch {
		case strings.HasPrefix(target, "#") && ids[target[1:]], isProblem && site.Problem(problem) != nil, target == "/openapi.yaml":
		default:
			t.Errorf("a link leads to %s", target)
		}
	}
	for _, foreign := range []string{"<script", "<link", "<img", "src=", "@import", "url("} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %q", foreign)
		}
	}
	if len(site.ProblemTypes()) < 10 || site.Problem("nothing") != nil {
		t.Errorf("kinds of problems: %v", site.ProblemTypes())
	}
}
