package registry

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/dataplane/internal/format"
	"modelgateway/shared/catalogkv"
)

// The tables hold every parameter that the recorded list of the formats has, if that
// list is at hand, and do with it what the list suggests.
func TestRecordedParameters(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(shared, "..", "params.json"))
	if err != nil {
		t.Skip("no recorded parameters here")
	}
	var recorded struct {
		Formats map[catalogkv.Format]struct {
			Params []struct {
				Name   string            `json:"name"`
				Policy string            `json:"policy"`
				Value  json.RawMessage   `json:"value"`
				Allow  []json.RawMessage `json:"allow_values"`
			} `json:"params"`
		} `json:"formats"`
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	suggested := map[string][]format.Action{
		"forward": {format.Forward},
		"clamp":   {format.Clamp, format.Forward}, // bounds of tokens are not moved, they are reserved for
		"reject":  {format.Reject},
		"force":   {format.Force},
		"replace": {format.Replace, format.Drop},
	}
	// Decided otherwise: pictures are not streamed, and the options of a stream are put
	// together by the format.
	otherwise := map[catalogkv.Format][]string{catalogkv.Images: {"stream", "partial_images"}, catalogkv.Chat: {"stream_options"}}
	for f, list := range recorded.Formats {
		d, ok := For(f)
		if !ok {
			t.Errorf("no dialect for %s", f)
			continue
		}
		for _, param := range list.Params {
			row := d.Policy().Row(param.Name)
			if !slices.Contains(d.Policy().Names(), param.Name) {
				t.Errorf("%s: no row for %s", f, param.Name)
				continue
			}
			if slices.Contains(otherwise[f], param.Name) {
				continue
			}
			if !slices.Contains(suggested[param.Policy], row.Action) {
				t.Errorf("%s: %s is not %s", f, param.Name, param.Policy)
			}
			var allow []string
			for _, value := range param.Allow {
				if string(value) != "null" {
					allow = append(allow, string(value))
				}
			}
			if diff := cmp.Diff(allow, row.Allow); diff != "" {
				t.Errorf("%s: values of %s, recorded -, in the table +:\n%s", f, param.Name, diff)
			}
			if row.Value != string(param.Value) {
				t.Errorf("%s: %s is forced to %s; want %s", f, param.Name, row.Value, param.Value)
			}
		}
	}
}
