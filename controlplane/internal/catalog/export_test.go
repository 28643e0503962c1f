package catalog

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/catalogkv"
)

// An exported document has every member that the applied one had, so that applying an export changes nothing.
func TestExportKeepsEveryMember(t *testing.T) {
	t.Parallel()
	applied := parse(t, `
currency: USD
settings: {image_input_tokens: 900}
providers:
  - {id: p, name: P, kind: vertex, base_url: "https://p.example", addresses: {chat: {path: /c, stream_path: /s, query: {a: b}}}, enabled: false, auth: x-api-key, anthropic_version: "2023-06-01", headers: {x-title: us},
     connect_timeout: 250ms, first_byte_timeout: 1s, idle_timeout: 2s, total_timeout: 10m, keeps_billing: true, recognises_repeats: true, wants_user: true,
     http2: true, proxy: "http://proxy.example:3128", ca: "`+strings.ReplaceAll(issuer, "\n", `\n`)+`", credentials: [{name: c, enabled: false}]}
models:
  - {id: m, type: video, display_name: M, owned_by: us, context_window: 9, max_output_tokens: 8, reserve_output_tokens: 7, default_seconds: 6,
     enabled: false, public: false, price: {seconds: [{price: "0.10"}, {size: big, price: "0.20"}]}, params: {videos: {size: {policy: reject}}},
     routes: [{id: r, provider: p, upstream_model: up, formats: [videos], addresses: {videos: {path: "/{model}"}}, priority: 1, weight: 2, enabled: false, first_token_timeout: 20s, provider_price: {seconds: [{price: "0.05"}]}, params: {videos: {size: {policy: reject}}}}]}
grants: []
`)
	for _, entry := range []any{applied.Settings, applied.Providers[0], applied.Models[0], applied.Models[0].Routes[0]} {
		v := reflect.ValueOf(entry)
		for i := range v.NumField() {
			if v.Field(i).IsZero() && v.Type().Field(i).Name != "ProviderPriceHidden" { // which no applied document has
				t.Errorf("the document of this test has no %s.%s; add it", v.Type().Name(), v.Type().Field(i).Name)
			}
		}
	}
	want, err := applied.target()
	if err != nil {
		t.Fatal(err)
	}
	state := State{Settings: want.settings, Providers: map[string]Provider{}, Models: map[string]Model{}}
	for id := range want.providers {
		state.Providers[id] = Provider{Spec: want.providers[id].spec, Credentials: map[string]Credential{"c": {Disabled: true}}}
	}
	for id := range want.models {
		m := want.models[id]
		state.Models[id] = Model{Spec: m.spec, Sheet: m.sheet, Routes: map[string]catalogkv.Route{}, ProviderSheets: m.providerSheets}
		for _, r := range m.routes {
			state.Models[id].Routes[r.ID] = r
		}
	}
	if diff := cmp.Diff(applied, state.document()); diff != "" {
		t.Errorf("the export (-applied +exported):\n%s", diff)
	}
}
