package httpapi

import (
	"testing"

	"modelgateway/controlplane/api"
	"modelgateway/controlplane/internal/docs"
)

// Every kind of problem that can be answered is in the document, with its
// status, and every one that is in the document can be answered.
func TestProblemsAreDocumented(t *testing.T) {
	t.Parallel()
	site, err := docs.New(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]int{}
	for _, p := range site.Kinds() {
		documented[p.Code] = p.Status
	}
	answered := map[string]bool{internal.code: true, invalidInput.code: true}
	for _, k := range kinds {
		answered[k.kind.code] = true
		if documented[k.kind.code] != k.kind.status {
			t.Errorf("%s is answered with %d; x-problems of the document says %d", k.kind.code, k.kind.status, documented[k.kind.code])
		}
	}
	for code := range documented {
		if !answered[code] {
			t.Errorf("x-problems of the document has %s, which nothing answers", code)
		}
	}
}
