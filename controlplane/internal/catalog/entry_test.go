package catalog

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
	"modelgateway/shared/seal"
)

type accountID = account.ID

func cmpSorted(less func(a, b string) bool) cmp.Option { return cmpopts.SortSlices(less) }

func newService(t *testing.T) *Service {
	t.Helper()
	v, err := vault.New("m1", map[string][]byte{"m1": seal.NewSecret()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	return NewService(Config{Vault: v, Fleet: fleet, Log: slog.New(slog.DiscardHandler)})
}

// stored returns a state with one object of each kind.
func (s *Service) stored() *State {
	id := "crd_1"
	return &State{
		Settings: catalogkv.Settings{Currency: "USD"},
		Providers: map[string]Provider{"p": {
			Spec:        catalogkv.Provider{ID: "p", Name: "p", BaseURL: "https://p.example", Enabled: true},
			Credentials: map[string]Credential{"main": {ID: id, Sealed: s.cfg.Vault.Seal([]byte("secret"), catalogkv.CredentialContext(id))}},
		}},
		Models: map[string]Model{"m": {
			Spec:      catalogkv.Model{ID: "m", Type: catalogkv.Text, Enabled: true, Public: true},
			Sheet:     price.Sheet{Version: 4, Rates: price.Rates{price.Input: 1e9, price.Output: 2e9}},
			Routes:    map[string]catalogkv.Route{"r": {ID: "r", Provider: "p", UpstreamModel: "u", Formats: []catalogkv.Format{catalogkv.Chat}, Enabled: true}},
			CreatedAt: time.Unix(1_700_000_000, 0),
		}},
		Grants: map[account.ID][]string{{1}: {"m"}},
	}
}

func TestChangedEntriesArePublished(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*Service, *State)
		want   []string // subjects, with a minus for what is removed
	}{
		{"nothing", func(*Service, *State) {}, nil},
		{"settings", func(_ *Service, s *State) { s.Settings.ImageInputTokens = 7 }, []string{"settings.settings"}},
		{"a price", func(_ *Service, s *State) { m := s.Models["m"]; m.Sheet.Version = 5; s.Models["m"] = m }, []string{"model.m"}},
		{"a route", func(_ *Service, s *State) { delete(s.Models["m"].Routes, "r") }, []string{"model.m"}},
		{"a model gone", func(_ *Service, s *State) { delete(s.Models, "m") }, []string{"-model.m"}},
		{"a provider", func(_ *Service, s *State) { p := s.Providers["p"]; p.Spec.Enabled = false; s.Providers["p"] = p }, []string{"provider.p"}},
		{"a credential", func(sv *Service, s *State) {
			s.Providers["p"].Credentials["main"] = Credential{ID: "crd_2", Sealed: sv.cfg.Vault.Seal([]byte("other"), catalogkv.CredentialContext("crd_2"))}
		}, []string{"provider.p"}},
		{"sealed anew", func(sv *Service, s *State) {
			s.Providers["p"].Credentials["main"] = Credential{ID: "crd_1", Sealed: sv.cfg.Vault.Seal([]byte("secret"), catalogkv.CredentialContext("crd_1"))}
		}, nil},
		{"a provider gone", func(_ *Service, s *State) { delete(s.Providers, "p") }, []string{"-provider.p"}},
		{"a grant", func(_ *Service, s *State) { s.Grants[account.ID{2}] = []string{"m"} }, []string{"grant." + account.ID{2}.String()}},
		{"a grant gone", func(_ *Service, s *State) { delete(s.Grants, account.ID{1}) }, []string{"-grant." + account.ID{1}.String()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			after := s.stored()
			test.change(s, after)
			entries, err := s.entries(s.stored(), after)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				sign := ""
				if e.Payload == nil {
					sign = "-"
				}
				got = append(got, sign+e.Subject)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPublishedEntryContents(t *testing.T) {
	t.Parallel()
	s := newService(t)
	entries, err := s.entries(&State{}, s.stored())
	if err != nil {
		t.Fatal(err)
	}
	payload := func(subject string, into any) {
		t.Helper()
		i := slices.IndexFunc(entries, func(e Entry) bool { return e.Subject == subject })
		if i < 0 {
			t.Fatalf("no entry %s", subject)
		}
		if err := json.Unmarshal(entries[i].Payload, into); err != nil {
			t.Fatal(err)
		}
	}
	var m catalogkv.Model
	payload("model.m", &m)
	want := catalogkv.Model{
		ID: "m", Type: catalogkv.Text, Enabled: true, Public: true, CreatedUnix: 1_700_000_000,
		Prices: []catalogkv.ScheduledPrice{{Sheet: price.Sheet{Version: 4, Rates: price.Rates{price.Input: 1e9, price.Output: 2e9}}}},
		Routes: []catalogkv.Route{{ID: "r", Provider: "p", UpstreamModel: "u", Formats: []catalogkv.Format{catalogkv.Chat}, Enabled: true}},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
	if m.PriceAt(time.Unix(1, 0)) == nil {
		t.Error("a proxy whose clock is behind finds no price")
	}
	var p catalogkv.Provider
	payload("provider.p", &p)
	if len(p.Credentials) != 1 || p.Credentials[0].Name != "main" {
		t.Fatalf("got %+v; want the credential main", p.Credentials)
	}
	secret, err := s.cfg.Fleet.Open(p.Credentials[0].Sealed, catalogkv.CredentialContext(p.Credentials[0].ID))
	if err != nil || string(secret) != "secret" {
		t.Errorf("the fleet reads %q, %v", secret, err)
	}
	for _, e := range entries {
		if strings.Contains(string(e.Payload), `"secret"`) {
			t.Errorf("%s shows the secret", e.Subject)
		}
	}
	var g catalogkv.Grant
	payload("grant."+account.ID{1}.String(), &g)
	if diff := cmp.Diff(catalogkv.Grant{AccountID: account.ID{1}.String(), Models: []string{"m"}}, g); diff != "" {
		t.Errorf("grant (-want +got):\n%s", diff)
	}
}

// A document that equals the state changes nothing; a change of one object gives one difference.
func TestPlanListsDifferences(t *testing.T) {
	t.Parallel()
	base := `
currency: USD
providers: [{id: p, base_url: "https://p.example", credentials: [{name: main, secret: secret}]}]
models:
- {id: m, type: text, price: {input: 1, output: 2}, routes: [{id: r, provider: p, upstream_model: u, formats: [chat]}]}
`
	for _, test := range []struct {
		name     string
		old, new string
		want     []string
	}{
		{"nothing", "", "", nil},
		{"secret kept", ", secret: secret", "", nil},
		{"settings", "currency: USD", "currency: USD\nsettings: {image_input_tokens: 5}", []string{"update settings " + "settings"}},
		{"secret", "secret: secret", "secret: other", []string{"update credential p/main"}},
		{"another kind", "secret: secret", "kind: aws, parameters: {region: eu-central-1}", []string{"update credential p/main"}},
		{"the identity of the proxy", "secret: secret", "kind: google", []string{"update credential p/main"}},
		{"a kind of provider", "{id: p,", "{id: p, kind: bedrock,", []string{"update provider p"}},
		{"credential gone", "{name: main, secret: secret}", "", []string{"remove credential p/main"}},
		{"credential more", "credentials: [", "credentials: [{name: b, secret: x}, ", []string{"create credential p/b"}},
		{"provider", "https://p.example", "https://q.example", []string{"update provider p"}},
		{"model", "type: text", "type: text, owned_by: us", []string{"update model m"}},
		{"price", "input: 1", "input: 3", []string{"update price m"}},
		{"route", "upstream_model: u", "upstream_model: v", []string{"update route r"}},
		{"route gone", "routes: [{id: r, provider: p, upstream_model: u, formats: [chat]}]", "", []string{"remove route r"}},
		{
			"model gone", "\n- {id: m, type: text, price: {input: 1, output: 2}, routes: [{id: r, provider: p, upstream_model: u, formats: [chat]}]}", " []",
			[]string{"remove route r", "remove model m", "remove grant " + account.ID{1}.String()},
		},
		{"grants gone", "currency: USD", "currency: USD\ngrants: []", []string{"remove grant " + account.ID{1}.String()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			target, err := parse(t, strings.Replace(base, test.old, test.new, 1)).target()
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.plan(s.stored(), target)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range p.Changes {
				got = append(got, string(c.Action)+" "+c.Kind+" "+c.ID)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// Maintenance is set by operators. Documents do not contain it and do not change it.
func TestPlanKeepsMaintenance(t *testing.T) {
	t.Parallel()
	s := newService(t)
	state := s.stored()
	down := &catalogkv.Maintenance{Message: "back soon"}
	state.Settings.Maintenance = down
	m := state.Models["m"]
	m.Spec.Maintenance = down
	state.Models["m"] = m
	p := state.Providers["p"]
	p.Spec.Maintenance = down
	state.Providers["p"] = p
	target, err := state.document().target()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := s.plan(state, target)
	if err != nil || len(plan.Changes) != 0 {
		t.Errorf("got %+v, %v; want nothing", plan, err)
	}
}

// Without TLS a credential would be sent in the clear. An address that is stored already may stay.
func TestAddressWithoutTLSIsRefusedByDefault(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.RequireHTTPS = true
	state := s.stored()
	p := state.Providers["p"]
	p.Spec.BaseURL = "http://old.example"
	state.Providers["p"] = p
	doc := state.document()
	target, err := doc.target()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.plan(state, target); err != nil {
		t.Errorf("a stored address: %v", err)
	}
	doc.Providers = append(doc.Providers, ProviderEntry{ID: "new", BaseURL: "http://new.example"})
	if target, err = doc.target(); err != nil {
		t.Fatal(err)
	}
	var invalid validation.Errors
	if _, err := s.plan(state, target); !errors.As(err, &invalid) || len(invalid) != 1 || !strings.HasSuffix(invalid[0].Path, ".base_url") {
		t.Errorf("a new address: %v; want its base_url refused", err)
	}
}
