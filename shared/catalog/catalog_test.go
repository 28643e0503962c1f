package catalog_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"modelgateway/shared/catalog"
	"modelgateway/shared/price"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	tests := []struct {
		format catalog.Format
		kind   catalog.Type
		path   string
	}{
		{catalog.Chat, catalog.Text, "/v1/chat/completions"},
		{catalog.Responses, catalog.Text, "/v1/responses"},
		{catalog.Messages, catalog.Text, "/v1/messages"},
		{catalog.Images, catalog.Image, "/v1/images/generations"},
		{catalog.Videos, catalog.Video, "/v1/videos"},
	}
	for _, tt := range tests {
		if kind, path := tt.format.Type(), tt.format.Path(); kind != tt.kind || path != tt.path {
			t.Errorf("%s: got %s, %s; want %s, %s", tt.format, kind, path, tt.kind, tt.path)
		}
	}
}

func TestPriceAt(t *testing.T) {
	t.Parallel()
	sheet := func(effective, version int64) catalog.Priced {
		return catalog.Priced{EffectiveUnix: effective, Sheet: price.Sheet{Version: version}}
	}
	tests := []struct {
		name   string
		prices []catalog.Priced
		now    time.Time
		want   int64
	}{
		{"none", nil, time.Unix(100, 0), 0},
		{"always", []catalog.Priced{sheet(0, 1)}, time.Unix(1, 0), 1},
		{"not yet", []catalog.Priced{sheet(100, 1)}, time.Unix(100, 0).Add(-1), 0},
		{"from this second", []catalog.Priced{sheet(100, 1)}, time.Unix(100, 0), 1},
		{"the last that holds", []catalog.Priced{sheet(0, 1), sheet(100, 2), sheet(200, 3)}, time.Unix(199, 999), 2},
		{"the later of two at once", []catalog.Priced{sheet(100, 1), sheet(100, 2)}, time.Unix(100, 0), 2},
	}
	for _, tt := range tests {
		m := catalog.Model{Prices: tt.prices}
		got := int64(0)
		if s := m.PriceAt(tt.now); s != nil {
			got = s.Version
		}
		if got != tt.want {
			t.Errorf("%s: got version %d; want %d", tt.name, got, tt.want)
		}
	}
	m := catalog.Model{Prices: []catalog.Priced{sheet(0, 1)}}
	m.PriceAt(time.Unix(1, 0)).Version = 7
	if m.Prices[0].Sheet.Version != 7 {
		t.Error("PriceAt copies the sheet")
	}
}

func TestMaintenanceActive(t *testing.T) {
	t.Parallel()
	until := &catalog.Maintenance{UntilUnix: 100}
	tests := []struct {
		name string
		m    *catalog.Maintenance
		now  time.Time
		want bool
	}{
		{"none", nil, time.Unix(1, 0), false},
		{"until taken back", &catalog.Maintenance{}, time.Unix(1<<40, 0), true},
		{"before its end", until, time.Unix(100, 0).Add(-1), true},
		{"at its end", until, time.Unix(100, 0), false},
	}
	for _, tt := range tests {
		if got := tt.m.Active(tt.now); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// TestStoredEntries: entries as they lie in the bucket are read by every build
// that comes, and a build that is older skips what it does not know.
func TestStoredEntries(t *testing.T) {
	t.Parallel()
	tests := []struct {
		stored string
		want   any
	}{
		{`{"v":1,"rev":7,"later":true}`, catalog.Head{V: 1, Rev: 7}},
		{
			`{"id":"m","type":"text","enabled":true,"public":true,"prices":[{"effective_unix":9,"sheet":{"version":3,"rates":{"input":100}}}],
			"routes":[{"id":"rte_1","provider":"prv_1","upstream_model":"u","formats":["chat"],"priority":1,"weight":2,"enabled":true}],
			"params":{"chat":{"n":{"policy":"reject","allow":[1]}}},"maintenance":{"message":"soon","until_unix":5},"later":[]}`,
			catalog.Model{
				ID: "m", Type: catalog.Text, Enabled: true, Public: true,
				Prices: []catalog.Priced{{EffectiveUnix: 9, Sheet: price.Sheet{Version: 3, Rates: price.Rates{price.Input: 100}}}},
				Routes: []catalog.Route{{
					ID: "rte_1", Provider: "prv_1", UpstreamModel: "u", Formats: []catalog.Format{catalog.Chat}, Priority: 1, Weight: 2, Enabled: true,
				}},
				Params:      map[catalog.Format]catalog.Params{catalog.Chat: {"n": {Policy: "reject", Allow: []json.RawMessage{json.RawMessage("1")}}}},
				Maintenance: &catalog.Maintenance{Message: "soon", UntilUnix: 5},
			},
		},
		{
			`{"id":"prv_1","name":"p","base_url":"https://p","enabled":true,"auth":"x-api-key","headers":{"a":"b"},"credentials":[{"id":"crd_1","sealed":"AQI="}],
			"keeps_billing":true,"wants_user":true,"http2":true,"connect_timeout_ms":1,"first_byte_timeout_ms":2,"idle_timeout_ms":3,"total_timeout_ms":4}`,
			catalog.Provider{
				ID: "prv_1", Name: "p", BaseURL: "https://p", Enabled: true, Auth: "x-api-key", Headers: map[string]string{"a": "b"},
				Credentials:  []catalog.Credential{{ID: "crd_1", Sealed: []byte{1, 2}}},
				KeepsBilling: true, WantsUser: true, HTTP2: true,
				ConnectTimeoutMS: 1, FirstByteTimeoutMS: 2, IdleTimeoutMS: 3, TotalTimeoutMS: 4,
			},
		},
		{`{"account_id":"acc_1","models":["m"]}`, catalog.Grant{AccountID: "acc_1", Models: []string{"m"}}},
		{`{"currency":"EUR","image_input_tokens":4}`, catalog.Settings{Currency: "EUR", ImageInputTokens: 4}},
	}
	for _, tt := range tests {
		got := reflect.New(reflect.TypeOf(tt.want))
		if err := json.Unmarshal([]byte(tt.stored), got.Interface()); err != nil {
			t.Errorf("%s: %v", tt.stored, err)
			continue
		}
		if !reflect.DeepEqual(got.Elem().Interface(), tt.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.stored, got.Elem().Interface(), tt.want)
		}
	}
	if got := catalog.CredentialContext("crd_1"); got != "credential:crd_1" {
		t.Errorf("the seal context is %q; what is sealed under it could not be opened", got)
	}
}
