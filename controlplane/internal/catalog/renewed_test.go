package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
)

const renewedDocument = `
currency: USD
providers: [{id: p, base_url: "https://p.example", credentials: [{name: main, kind: aws, parameters: {region: eu-central-1, role_arn: arn}}]}]
models:
- {id: m, type: text, price: {input: 1, output: 2}, routes: [{id: r, provider: p, upstream_model: u, formats: [chat]}]}
`

// renewed returns the service and the state in which the document was applied.
func renewed(t *testing.T) (*Service, *State) {
	t.Helper()
	s := newService(t)
	state := s.stored()
	target, err := parse(t, renewedDocument).target()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := s.plan(state, target)
	if err != nil || len(plan.Credentials) != 1 {
		t.Fatalf("got %+v, %v", plan, err)
	}
	c := plan.Credentials[0]
	p := state.Providers["p"]
	p.Credentials = map[string]Credential{"main": {ID: c.ID, Kind: c.Kind, Sealed: c.Sealed}}
	state.Providers["p"] = p
	return s, state
}

// Parameters are sealed as secrets are, for the database and for the proxies, and never shown.
func TestParametersAreSealedAndPublishedWithTheirKind(t *testing.T) {
	t.Parallel()
	s, state := renewed(t)
	entry, err := s.providerEntry(state.Providers["p"])
	if err != nil || len(entry.Credentials) != 1 || entry.Credentials[0].Kind != catalogkv.AWSCredential {
		t.Fatalf("published %+v, %v", entry, err)
	}
	c := entry.Credentials[0]
	text, err := s.cfg.Fleet.Open(c.Sealed, catalogkv.CredentialContext(c.ID))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"region": "eu-central-1", "role_arn": "arn"}
	if got, err := catalogkv.DecodeParameters(string(text)); err != nil || !cmp.Equal(got, want) {
		t.Errorf("proxies read %v, %v", got, err)
	}
	for what, v := range map[string]any{"the entry": entry, "the document": state.document()} {
		if shown, err := json.Marshal(v); err != nil || strings.Contains(string(shown), "role_arn") {
			t.Errorf("%s shows %s, %v", what, shown, err)
		}
	}
	if e := state.document().Providers[0].Credentials[0]; e.Kind != catalogkv.AWSCredential {
		t.Errorf("the document has %+v", e)
	}
}

func TestParametersAreKeptOrReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		old, new  string
		want      []string
		wantError string
	}{
		"the same":             {"", "", nil, ""},
		"in another order":     {"{region: eu-central-1, role_arn: arn}", "{role_arn: arn, region: eu-central-1}", nil, ""},
		"kept":                 {", parameters: {region: eu-central-1, role_arn: arn}", "", nil, ""},
		"changed":              {"role_arn: arn", "role_arn: other", []string{"update credential p/main"}, ""},
		"one less":             {", role_arn: arn", "", []string{"update credential p/main"}, ""},
		"a secret now":         {"kind: aws, parameters: {region: eu-central-1, role_arn: arn}", "secret: s", []string{"update credential p/main"}, ""},
		"a secret without one": {", kind: aws, parameters: {region: eu-central-1, role_arn: arn}", "", nil, "providers[0].credentials[0].secret"},
		"another kind":         {"kind: aws, parameters: {region: eu-central-1, role_arn: arn}", "kind: azure", []string{"update credential p/main"}, ""},
		"no region":            {"{region: eu-central-1, role_arn: arn}", "{}", nil, "providers[0].credentials[0].parameters.region"},
		"required and absent":  {"kind: aws, parameters: {region: eu-central-1, role_arn: arn}", "kind: oauth", nil, "providers[0].credentials[0].parameters.token_url"},
		"kept at another server": {
			`https://p.example", credentials: [{name: main, kind: aws, parameters: {region: eu-central-1, role_arn: arn}`, `https://q.example", credentials: [{name: main, kind: aws`,
			nil, "providers[0].credentials[0].parameters",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, state := renewed(t)
			target, err := parse(t, strings.Replace(renewedDocument, test.old, test.new, 1)).target()
			var got []string
			if err == nil {
				var plan *Plan
				if plan, err = s.plan(state, target); err == nil {
					for _, c := range plan.Changes {
						got = append(got, string(c.Action)+" "+c.Kind+" "+c.ID)
					}
				}
			}
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got %v; want an error of %s", err, test.wantError)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
