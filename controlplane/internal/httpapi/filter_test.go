package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/httpapi/servertest"
	"modelgateway/shared/platform/apidoc"
)

// A filter with a value that does not exist finds nothing, which looks like an answer. So a value that is not one of a list, and
// an id that is none, are refused by name.
func TestUnknownValuesOfFiltersAreRefused(t *testing.T) {
	t.Parallel()
	b := start(t)
	a := b.Account(1)
	doc, err := apidoc.Parse(api.Document)
	servertest.Check(t, err)
	required := map[string]string{"measure": "requests", "format": "csv"}
	checked := 0
	for _, op := range doc.Operations {
		path := strings.ReplaceAll(op.Path, "{account_id}", a.ID)
		if op.Method != http.MethodGet || strings.Contains(path, "{") {
			continue
		}
		for _, p := range op.Params {
			schema := doc.Resolve(p.Schema)
			if schema.Items != nil {
				schema = doc.Resolve(schema.Items)
			}
			if p.In != "query" || len(schema.Enum) == 0 && !slices.Contains([]string{"account_id", "project_id", "key_id"}, p.Name) {
				continue
			}
			query := url.Values{}
			for _, other := range op.Params {
				if other.Required && other.In == "query" {
					query.Set(other.Name, required[other.Name])
				}
			}
			query.Set(p.Name, "no-such-value")
			answer, problem := b.sendText(op.Method, path+"?"+query.Encode(), "")
			if got := fields(&problem); answer.StatusCode != http.StatusBadRequest || !slices.Contains(got, p.Name) {
				t.Errorf("%s with an unknown %s: got %d %v", op.ID, p.Name, answer.StatusCode, got)
			}
			checked++
		}
	}
	if checked < 20 {
		t.Errorf("only %d filters were checked", checked)
	}
}
