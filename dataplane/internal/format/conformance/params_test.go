package conformance

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/provider/classify"
	"modelgateway/shared/catalogkv"
)

// testdata/params.json lists the public parameters of the formats, each with the policy
// that follows from its meaning. The list was written independently of the tables.
func TestParameterTablesMatchTheIndependentList(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/params.json")
	if err != nil {
		t.Fatal(err)
	}
	var list map[catalogkv.Format][]struct {
		Name   string            `json:"name"`
		Policy string            `json:"policy"`
		Value  json.RawMessage   `json:"value"`
		Allow  []json.RawMessage `json:"allow_values"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	actions := map[string][]format.Action{
		"forward": {format.Forward},
		"clamp":   {format.Clamp, format.Forward}, // token limits are not clamped: the request reserves for them
		"reject":  {format.Reject},
		"force":   {format.Force},
		"replace": {format.Replace, format.Drop},
	}
	// Parameters that the gateway treats differently: images are not streamed, and the
	// chat format writes its stream options itself.
	exceptions := map[catalogkv.Format][]string{catalogkv.Images: {"stream", "partial_images"}, catalogkv.Chat: {"stream_options"}}
	for f, params := range list {
		d, ok := dialects[f]
		if !ok {
			t.Errorf("no dialect for %s", f)
			continue
		}
		for _, param := range params {
			row := d.Policy().Row(param.Name)
			if !slices.Contains(d.Policy().Names(), param.Name) {
				t.Errorf("%s: no row for %s", f, param.Name)
				continue
			}
			if slices.Contains(exceptions[f], param.Name) {
				continue
			}
			if !slices.Contains(actions[param.Policy], row.Action) {
				t.Errorf("%s: the action of %s is %v; want %s", f, param.Name, row.Action, param.Policy)
			}
			var allow []string
			for _, value := range param.Allow {
				if string(value) != "null" {
					allow = append(allow, string(value))
				}
			}
			if diff := cmp.Diff(allow, row.Allow); diff != "" {
				t.Errorf("%s: values of %s (-list +table):\n%s", f, param.Name, diff)
			}
			if row.Value != string(param.Value) {
				t.Errorf("%s: %s is forced to %s; want %s", f, param.Name, row.Value, param.Value)
			}
		}
	}
}

// An error text that names a parameter in plain prose, without quotes, concerns that
// parameter only if the classifier's list of names has it: the client gets no param
// otherwise.
func TestClassifierKnowsTheSentParameters(t *testing.T) {
	t.Parallel()
	// Not the client's mistake, and a name for which the rules of the classifier have a class.
	exceptions := []string{"model", "cache_control"}
	for f, d := range dialects {
		for _, name := range d.Policy().Names() {
			action := d.Policy().Row(name).Action
			if action == format.Reject || action == format.Drop || strings.Contains(name, ".") || slices.Contains(exceptions, name) {
				continue
			}
			body := []byte(`{"error":{"message":"The parameter ` + name + ` is out of range"}}`)
			v := classify.Classify(classify.Answer{Format: string(f), Status: http.StatusBadRequest, Body: body})
			if v.Param != name {
				t.Errorf("%s: an error about %s has the param %q; add the name to paramNames in package classify", f, name, v.Param)
			}
		}
	}
}
