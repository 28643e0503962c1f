package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
	"modelgateway/shared/seal"
	"modelgateway/shared/subject"
)

func newKey(t *testing.T) *seal.Key {
	t.Helper()
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// source writes entries as the control plane does.
type source struct {
	t     *testing.T
	store *Store
	fleet *seal.Key
}

func setup(t *testing.T) *source {
	t.Helper()
	fleet := newKey(t)
	return &source{t, New(fleet), fleet}
}

func (s *source) set(kind, name string, v any) {
	s.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	s.store.Set(kind, name, data)
}

// apply ends a change, which must have no invalid entries.
func (s *source) apply(rev int64) *Snapshot {
	s.t.Helper()
	s.set(subject.CatalogHead, "", catalogkv.Head{V: 1, Rev: rev})
	if err := s.store.Apply(); err != nil {
		s.t.Fatal(err)
	}
	return s.store.Snapshot()
}

func (s *source) provider(id string) catalogkv.Provider {
	return catalogkv.Provider{
		ID: id, Name: id, BaseURL: "http://" + id, Enabled: true,
		Credentials: []catalogkv.Credential{{ID: "crd_" + id, Sealed: s.fleet.Seal([]byte("credential of "+id), catalogkv.CredentialContext("crd_"+id))}},
	}
}

func model(id string, formats ...catalogkv.Format) catalogkv.Model {
	return catalogkv.Model{
		ID: id, Type: catalogkv.Text, Enabled: true, Public: true,
		Prices: []catalogkv.ScheduledPrice{{Sheet: price.Sheet{Version: 1}}},
		Routes: []catalogkv.Route{{ID: "rte_" + id, Provider: "p", UpstreamModel: "up-" + id, Formats: formats, Enabled: true}},
	}
}

func names(models []*Model) []string {
	names := make([]string, 0, len(models))
	for _, m := range models {
		names = append(names, m.ID)
	}
	return names
}

// A new installation has an empty catalog, and its proxies are ready.
func TestAnEmptyCatalogIsReady(t *testing.T) {
	t.Parallel()
	s := setup(t)
	if got := s.apply(0); s.store.Ready() != nil || len(got.Visible("")) != 0 {
		t.Errorf("ready: %v, models %v; want ready without models", s.store.Ready(), names(got.Visible("")))
	}
}

func TestSnapshotChangesWithTheHeadOnly(t *testing.T) {
	t.Parallel()
	s := setup(t)
	if err := s.store.Ready(); err == nil || s.store.Snapshot() != nil || s.store.Rev() != 0 {
		t.Error("ready without a snapshot")
	}
	s.set(subject.KindProvider, "p", s.provider("p"))
	s.set(subject.KindModel, "a", model("a", catalogkv.Chat))
	if err := s.store.Apply(); err != nil || s.store.Snapshot() != nil {
		t.Errorf("applied without head: %v", err)
	}
	first := s.apply(7)
	if err := s.store.Ready(); err != nil || first.Rev != 7 || s.store.Rev() != 7 {
		t.Errorf("revision %d, ready: %v; want 7 and ready", s.store.Rev(), err)
	}
	s.set(subject.KindModel, "b", model("b", catalogkv.Chat))
	s.store.Set(subject.KindModel, "a", nil)
	if got := names(s.store.Snapshot().Visible("")); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("an incomplete change is visible: %v", got)
	}
	second := s.apply(8)
	if got := names(second.Visible("")); !cmp.Equal(got, []string{"b"}) {
		t.Errorf("after the head: %v; want b", got)
	}
	if got := names(first.Visible("")); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("an earlier snapshot has changed: %v", got)
	}
	if since := time.Since(s.store.AppliedAt()); since < 0 || since > time.Hour {
		t.Errorf("applied %v ago", since)
	}
}

func TestReloadReplacesTheCatalogOnlyWhenComplete(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.set(subject.KindProvider, "p", s.provider("p"))
	s.set(subject.KindModel, "a", model("a", catalogkv.Chat))
	s.apply(1)
	s.store.BeginReload()
	if err := s.store.Apply(); err != nil { // the bucket was recreated and is empty
		t.Error(err)
	}
	if got := names(s.store.Snapshot().Visible("")); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("during the reload: %v; want the models from before", got)
	}
	s.set(subject.KindModel, "b", model("b", catalogkv.Chat))
	s.set(subject.CatalogHead, "", catalogkv.Head{Rev: 1})
	if err := s.store.Apply(); err == nil {
		t.Error("a model without its provider is not reported as invalid")
	}
	if got := names(s.store.Snapshot().Visible("")); !cmp.Equal(got, []string{"b"}) {
		t.Errorf("after the reload: %v; want b", got)
	}
}

func TestInvalidEntriesAreLeftOutAndReported(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.set(subject.KindProvider, "p", s.provider("p"))
	bad := s.provider("q")
	bad.Credentials = append(bad.Credentials,
		catalogkv.Credential{ID: "crd_moved", Sealed: s.provider("q").Credentials[0].Sealed},
		catalogkv.Credential{ID: "crd_foreign", Sealed: newKey(t).Seal([]byte("x"), catalogkv.CredentialContext("crd_foreign"))})
	s.set(subject.KindProvider, "q", bad)
	s.store.Set(subject.KindProvider, "broken", []byte("{"))
	s.set(subject.KindModel, "a", model("a", catalogkv.Chat))
	lost := model("lost", catalogkv.Chat)
	lost.Routes[0].Provider = "nobody"
	s.set(subject.KindModel, "lost", lost)
	s.store.Set(subject.KindModel, "torn", []byte(`{"id":7}`))
	s.store.Set(subject.KindGrant, "torn", []byte(`[]`))
	s.store.Set("kind of tomorrow", "x", []byte(`?`))
	s.set(subject.CatalogHead, "", catalogkv.Head{Rev: 3})
	err := s.store.Apply()
	if err == nil {
		t.Fatal("no invalid entry is reported")
	}
	for _, want := range []string{"provider broken", "credential crd_moved", "credential crd_foreign", "model torn", "model lost", "nobody", "grant torn"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "credential of") {
		t.Errorf("the error contains a credential: %v", err)
	}
	snapshot := s.store.Snapshot()
	if got := names(snapshot.Visible("")); !cmp.Equal(got, []string{"a", "lost"}) {
		t.Errorf("models %v; want a and lost", got)
	}
	if m := snapshot.Model("lost", ""); len(m.Routes[catalogkv.Chat]) != 0 || !m.Supports(catalogkv.Chat) {
		t.Error("a model without provider has a route, or does not support its format")
	}
	s.store.Set(subject.CatalogHead, "", []byte("?"))
	if err := s.store.Apply(); err == nil || s.store.Rev() != 3 {
		t.Errorf("a broken head: %v, revision %d", err, s.store.Rev())
	}
}

func TestCredentialsAreDecrypted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.provider("p")
	p.Credentials = append(p.Credentials, catalogkv.Credential{ID: "crd_2", Name: "spare", Sealed: s.fleet.Seal([]byte("two"), catalogkv.CredentialContext("crd_2"))})
	s.set(subject.KindProvider, "p", p)
	s.set(subject.KindModel, "a", model("a", catalogkv.Chat))
	opened := s.apply(1).Provider("p")
	var got []string
	for _, credential := range opened.Credentials {
		got = append(got, credential.ID+" "+credential.Name+" "+credential.Reveal())
		for _, text := range []string{fmt.Sprint(credential), fmt.Sprintf("%+v", credential), fmt.Sprintf("%#v", credential), fmt.Sprintf("%v", []Credential{credential})} {
			if strings.Contains(text, credential.Reveal()) {
				t.Errorf("formatting prints the secret: %s", text)
			}
		}
	}
	if diff := cmp.Diff([]string{"crd_p  credential of p", "crd_2 spare two"}, got); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
	if opened.Provider.Credentials != nil {
		t.Error("the encrypted credentials are kept")
	}
	snapshot := s.store.Snapshot()
	if snapshot.Provider("other") != nil {
		t.Error("found a provider that does not exist")
	}
}

// While one fleet key replaces another, a proxy has both.
func TestCredentialsOfBothFleetKeysAreDecrypted(t *testing.T) {
	t.Parallel()
	s, before := setup(t), newKey(t)
	s.store = New(s.fleet, before)
	p := s.provider("p")
	p.Credentials = append(p.Credentials, catalogkv.Credential{ID: "crd_2", Sealed: before.Seal([]byte("two"), catalogkv.CredentialContext("crd_2"))})
	s.set(subject.KindProvider, "p", p)
	got := s.apply(1).Provider("p").Credentials
	if len(got) != 2 || got[1].Reveal() != "two" {
		t.Errorf("got %d credentials; want both", len(got))
	}
}

func TestModelsAreVisibleIfPublicOrGranted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.set(subject.KindProvider, "p", s.provider("p"))
	for _, id := range []string{"public", "closed", "off", "granted off"} {
		m := model(id, catalogkv.Chat)
		m.Public, m.Enabled = id == "public" || id == "off", !strings.HasSuffix(id, "off")
		s.set(subject.KindModel, id, m)
	}
	s.set(subject.KindGrant, "acc_1", catalogkv.Grant{AccountID: "acc_1", Models: []string{"closed", "granted off", "gone"}})
	snapshot := s.apply(1)
	for account, want := range map[string][]string{"": {"public"}, "acc_1": {"closed", "public"}, "acc_2": {"public"}} {
		if diff := cmp.Diff(want, names(snapshot.Visible(account))); diff != "" {
			t.Errorf("visible to %q (-want +got):\n%s", account, diff)
		}
		for _, id := range []string{"public", "closed", "off", "granted off", "gone"} {
			seen := false
			for _, w := range want {
				seen = seen || w == id
			}
			if got := snapshot.Model(id, account) != nil; got != seen {
				t.Errorf("model %q for %q: found %v; want %v", id, account, got, seen)
			}
		}
	}
	s.store.Set(subject.KindGrant, "acc_1", nil)
	if got := names(s.apply(2).Visible("acc_1")); !cmp.Equal(got, []string{"public"}) {
		t.Errorf("after the grant was deleted: %v", got)
	}
}

func TestModelHasEnabledRoutesByFormat(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		change  func(m *catalogkv.Model, p *catalogkv.Provider)
		formats []catalogkv.Format
		routes  int // on chat
	}{
		{"as it is", func(*catalogkv.Model, *catalogkv.Provider) {}, []catalogkv.Format{catalogkv.Chat, catalogkv.Messages}, 1},
		{"an image model", func(m *catalogkv.Model, _ *catalogkv.Provider) { m.Type = catalogkv.Image }, nil, 1},
		{"route disabled", func(m *catalogkv.Model, _ *catalogkv.Provider) { m.Routes[0].Enabled = false }, []catalogkv.Format{catalogkv.Chat, catalogkv.Messages}, 0},
		{"provider disabled", func(_ *catalogkv.Model, p *catalogkv.Provider) { p.Enabled = false }, []catalogkv.Format{catalogkv.Chat, catalogkv.Messages}, 0},
		{"no credential", func(_ *catalogkv.Model, p *catalogkv.Provider) { p.Credentials = nil }, []catalogkv.Format{catalogkv.Chat, catalogkv.Messages}, 0},
		{"no route", func(m *catalogkv.Model, _ *catalogkv.Provider) { m.Routes = nil }, nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			m, p := model("a", catalogkv.Messages, catalogkv.Chat), s.provider("p")
			tt.change(&m, &p)
			s.set(subject.KindModel, "a", m)
			s.set(subject.KindProvider, "p", p)
			got := s.apply(1).Model("a", "")
			if diff := cmp.Diff(tt.formats, got.Formats()); diff != "" {
				t.Errorf("formats (-want +got):\n%s", diff)
			}
			if n := len(got.Routes[catalogkv.Chat]); n != tt.routes {
				t.Errorf("%d routes; want %d", n, tt.routes)
			}
			for _, r := range got.Routes[catalogkv.Chat] {
				if r.Provider.ID != "p" || r.UpstreamModel != "up-a" {
					t.Errorf("route %+v", r)
				}
			}
		})
	}
}

func TestModelIsUnservedIfAllItsRoutesFail(t *testing.T) {
	t.Parallel()
	s := setup(t)
	disabled := model("off", catalogkv.Chat)
	disabled.Enabled = false
	for _, m := range []catalogkv.Model{model("a", catalogkv.Messages, catalogkv.Chat), model("b", catalogkv.Chat), disabled, {ID: "none", Type: catalogkv.Text, Enabled: true}} {
		s.set(subject.KindModel, m.ID, m)
	}
	s.set(subject.KindProvider, "p", s.provider("p"))
	got := s.apply(1)
	for failing, want := range map[string][]string{"": nil, "rte_a": {"a"}, "rte_a rte_off": {"a"}, "rte_b rte_a": {"a", "b"}, "rte_x": nil} {
		if diff := cmp.Diff(want, got.Unserved(strings.Fields(failing))); diff != "" {
			t.Errorf("%q fails: models (-want +got):\n%s", failing, diff)
		}
	}
}

func TestPriceOfAVersion(t *testing.T) {
	t.Parallel()
	s := setup(t)
	m := model("a", catalogkv.Chat)
	m.Prices = []catalogkv.ScheduledPrice{
		{EffectiveUnix: 100, Sheet: price.Sheet{Version: 1}}, {EffectiveUnix: 200, Sheet: price.Sheet{Version: 2}},
	}
	s.set(subject.KindProvider, "p", s.provider("p"))
	s.set(subject.KindModel, "a", m)
	snapshot := s.apply(1)
	for at, want := range map[int64]int64{99: 0, 100: 1, 199: 1, 200: 2, 1 << 40: 2} {
		got := int64(0)
		if sheet := snapshot.Model("a", "").PriceAt(time.Unix(at, 0)); sheet != nil {
			got = sheet.Version
		}
		if got != want {
			t.Errorf("at %d: version %d; want %d", at, got, want)
		}
	}
	if sheet := snapshot.Price("a", 1); sheet == nil || sheet.Version != 1 {
		t.Errorf("an earlier version: %+v", sheet)
	}
	if snapshot.Price("a", 3) != nil || snapshot.Price("b", 1) != nil {
		t.Error("found a price that does not exist")
	}
}

func TestReadersAndChangesRunConcurrently(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.set(subject.KindProvider, "p", s.provider("p"))
	s.apply(1)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			last := int64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				snapshot := s.store.Snapshot()
				if snapshot.Rev < last || int64(len(snapshot.Visible(""))) != snapshot.Rev-1 {
					t.Errorf("revision %d with %d models", snapshot.Rev, len(snapshot.Visible("")))
					return
				}
				last = snapshot.Rev
			}
		})
	}
	for i := range int64(100) {
		id := fmt.Sprint("m", i)
		data, err := json.Marshal(model(id, catalogkv.Chat))
		if err != nil {
			t.Fatal(err)
		}
		s.store.Set(subject.KindModel, id, data)
		clear(data)
		s.apply(i + 2)
	}
	close(stop)
	wg.Wait()
}

func TestTargetsOfRoutesAreThoseOfTheCatalog(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.provider("p")
	p.Addresses = catalogkv.Addresses{
		catalogkv.Chat:      {Path: "/v4/chat", Query: map[string]string{"api-version": "preview"}},
		catalogkv.Responses: {Path: "/v4/responses"},
	}
	m := model("m", catalogkv.Chat, catalogkv.Responses, catalogkv.Messages)
	m.Routes[0].Addresses = catalogkv.Addresses{catalogkv.Chat: {Path: "/{model}/chat", StreamPath: "/{model}/stream"}}
	disabled := model("m", catalogkv.Chat).Routes[0]
	disabled.ID, disabled.Enabled = "rte_off", false
	m.Routes = append(m.Routes, disabled)
	s.set(subject.KindProvider, "p", p)
	s.set(subject.KindModel, "m", m)
	snapshot := s.apply(1)
	for _, tt := range []struct {
		route  string
		format catalogkv.Format
		stream bool
		want   catalogkv.Target
	}{
		{"rte_m", catalogkv.Chat, false, catalogkv.Target{Path: "/up-m/chat"}},
		{"rte_m", catalogkv.Chat, true, catalogkv.Target{Path: "/up-m/stream"}},
		{"rte_m", catalogkv.Responses, true, catalogkv.Target{Path: "/v4/responses"}},
		{"rte_m", catalogkv.Messages, false, catalogkv.Target{Path: "/v1/messages"}},
		{"rte_off", catalogkv.Chat, true, catalogkv.Target{Path: "/v4/chat", Query: "api-version=preview"}},
	} {
		if got := snapshot.Route(tt.route).Target(tt.format, tt.stream); got != tt.want {
			t.Errorf("%s as %s, stream %v: got %v; want %v", tt.route, tt.format, tt.stream, got, tt.want)
		}
	}
	if got := snapshot.Route("rte_unknown"); got != nil {
		t.Errorf("an unknown route: got %v", got)
	}
	routes := snapshot.Model("m", "").Routes[catalogkv.Chat]
	if len(routes) != 1 || routes[0] != snapshot.Route("rte_m") {
		t.Errorf("callable routes: got %v", routes)
	}
}

//nolint:paralleltest // counting allocations needs the process for itself
func TestTargetOfARequestIsNotComputedAgain(t *testing.T) {
	p := &Provider{Provider: catalogkv.Provider{Addresses: catalogkv.Addresses{catalogkv.Chat: {Path: "/{model}", Query: map[string]string{"a": "b"}}}}}
	r := NewRoute(catalogkv.Route{UpstreamModel: "m"}, p)
	for _, f := range []catalogkv.Format{catalogkv.Chat, catalogkv.Images} {
		if n := testing.AllocsPerRun(100, func() { r.Target(f, true) }); n != 0 {
			t.Errorf("the target of %s allocates %v times", f, n)
		}
	}
}
