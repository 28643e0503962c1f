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
		"clamp":   {format.Clamp, format.Forward}, // some have no bound that the gateway knows
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

func TestOutputLimitsAboveTheModelsAreLowered(t *testing.T) {
	t.Parallel()
	const chat, responses, messages = catalogkv.Chat, catalogkv.Responses, catalogkv.Messages
	override := func(f catalogkv.Format, name, policy string) *format.Policy {
		return dialects[f].Policy().With(catalogkv.Params{name: {Policy: policy, Value: json.RawMessage("30")}})
	}
	tests := []struct {
		f              catalogkv.Format
		p              *format.Policy
		model          int64
		received, sent string // members of the body
	}{
		{chat, nil, 50, `"max_tokens":51`, `"max_tokens":50`},
		{chat, nil, 50, `"max_completion_tokens":1e30`, `"max_completion_tokens":50`},
		{chat, nil, 50, `"max_tokens":60,"max_completion_tokens":60`, `"max_tokens":50,"max_completion_tokens":50`},
		{responses, nil, 50, `"max_output_tokens":51`, `"max_output_tokens":50`},
		{messages, nil, 50, `"max_tokens":51`, `"max_tokens":50`},

		{chat, nil, 50, `"max_tokens":50`, `"max_tokens":50`},
		{chat, nil, 50, `"max_tokens":0`, `"max_tokens":0`},
		{chat, nil, 50, `"max_tokens":null`, ``},
		{chat, nil, 50, ``, ``},
		{chat, nil, 0, `"max_tokens":51`, `"max_tokens":51`}, // the model has no known limit

		{chat, override(chat, "max_tokens", "clamp"), 50, `"max_tokens":51`, `"max_tokens":30`},
		{chat, override(chat, "max_tokens", "clamp"), 20, `"max_tokens":51`, `"max_tokens":20`},
		{chat, override(chat, "max_tokens", "forward"), 50, `"max_tokens":51`, `"max_tokens":50`},
		{chat, override(chat, "max_tokens", "drop"), 50, `"max_tokens":51`, ``},
		{chat, override(chat, "max_tokens", "force"), 50, `"max_tokens":51`, `"max_tokens":30`},
	}
	for _, tt := range tests {
		body := `"messages":[]`
		if tt.f == responses {
			body = `"input":"x"`
		}
		p := tt.p
		if p == nil {
			p = dialects[tt.f].Policy()
		}
		send := func(members string, limit int64) map[string]json.RawMessage {
			r, e := dialects[tt.f].Read(parse(t, strings.TrimSuffix(`{"model":"m",`+body+`,`+members, ",")+"}"))
			if e != nil {
				t.Fatal(e)
			}
			defer r.Release()
			if e := r.Check(p, format.Rules{}); e != nil {
				t.Fatalf("%s: %v", members, e)
			}
			var sent map[string]json.RawMessage
			if err := json.Unmarshal(r.AppendUpstream(nil, format.Target{Model: "m", Policy: p, MaxOutput: limit}), &sent); err != nil {
				t.Fatal(err)
			}
			return sent
		}
		sent := send(tt.received, tt.model)
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte("{"+tt.sent+"}"), &want); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
			if string(sent[name]) != string(want[name]) {
				t.Errorf("%s: %s with the model's limit %d: %s is sent as %q; want %q", tt.f, tt.received, tt.model, name, sent[name], want[name])
			}
		}
	}
}
