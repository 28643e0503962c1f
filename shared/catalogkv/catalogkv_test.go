package catalogkv_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

func TestFormatTypesAndPaths(t *testing.T) {
	t.Parallel()
	tests := []struct {
		format catalogkv.Format
		kind   catalogkv.Type
		path   string
	}{
		{catalogkv.Chat, catalogkv.Text, "/v1/chat/completions"},
		{catalogkv.Responses, catalogkv.Text, "/v1/responses"},
		{catalogkv.Messages, catalogkv.Text, "/v1/messages"},
		{catalogkv.Images, catalogkv.Image, "/v1/images/generations"},
		{catalogkv.Videos, catalogkv.Video, "/v1/videos"},
	}
	for _, tt := range tests {
		if kind, path := tt.format.Type(), tt.format.Path(); kind != tt.kind || path != tt.path {
			t.Errorf("%s: got %s, %s; want %s, %s", tt.format, kind, path, tt.kind, tt.path)
		}
	}
}

func TestPriceAtReturnsTheLatestEffectiveSheet(t *testing.T) {
	t.Parallel()
	sheet := func(effective, version int64) catalogkv.ScheduledPrice {
		return catalogkv.ScheduledPrice{EffectiveUnix: effective, Sheet: price.Sheet{Version: version}}
	}
	tests := []struct {
		name   string
		prices []catalogkv.ScheduledPrice
		now    time.Time
		want   int64
	}{
		{"none", nil, time.Unix(100, 0), 0},
		{"no start", []catalogkv.ScheduledPrice{sheet(0, 1)}, time.Unix(1, 0), 1},
		{"not yet", []catalogkv.ScheduledPrice{sheet(100, 1)}, time.Unix(100, 0).Add(-1), 0},
		{"from this second", []catalogkv.ScheduledPrice{sheet(100, 1)}, time.Unix(100, 0), 1},
		{"the latest in force", []catalogkv.ScheduledPrice{sheet(0, 1), sheet(100, 2), sheet(200, 3)}, time.Unix(199, 999), 2},
		{"the later of two with the same start", []catalogkv.ScheduledPrice{sheet(100, 1), sheet(100, 2)}, time.Unix(100, 0), 2},
	}
	for _, tt := range tests {
		m := catalogkv.Model{Prices: tt.prices}
		got := int64(0)
		if s := m.PriceAt(tt.now); s != nil {
			got = s.Version
		}
		if got != tt.want {
			t.Errorf("%s: got version %d; want %d", tt.name, got, tt.want)
		}
	}
	m := catalogkv.Model{Prices: []catalogkv.ScheduledPrice{sheet(0, 1)}}
	m.PriceAt(time.Unix(1, 0)).Version = 7
	if m.Prices[0].Sheet.Version != 7 {
		t.Error("PriceAt copies the sheet")
	}
}

func TestMaintenanceIsActiveUntilItsEnd(t *testing.T) {
	t.Parallel()
	until := &catalogkv.Maintenance{UntilUnix: 100}
	tests := []struct {
		name string
		m    *catalogkv.Maintenance
		now  time.Time
		want bool
	}{
		{"none", nil, time.Unix(1, 0), false},
		{"without an end", &catalogkv.Maintenance{}, time.Unix(1<<40, 0), true},
		{"before its end", until, time.Unix(100, 0).Add(-1), true},
		{"at its end", until, time.Unix(100, 0), false},
	}
	for _, tt := range tests {
		if got := tt.m.Active(tt.now); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// Entries in the bucket outlive releases: later releases must read them, and
// earlier releases must ignore members that they do not know.
func TestStoredEntriesAreDecoded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		stored string
		want   any
	}{
		{`{"v":1,"rev":7,"later":true}`, catalogkv.Head{V: 1, Rev: 7}},
		{
			`{"id":"m","type":"text","enabled":true,"public":true,"prices":[{"effective_unix":9,"sheet":{"version":3,"rates":{"input":100}}}],
			"routes":[{"id":"rte_1","provider":"prv_1","upstream_model":"u","formats":["chat"],"priority":1,"weight":2,"enabled":true,
			"addresses":{"chat":{"path":"/d/{model}","stream_path":"/s","query":{"api-version":"1"}}}}],
			"params":{"chat":{"n":{"policy":"reject","allow":[1]}}},"maintenance":{"message":"soon","until_unix":5},"later":[]}`,
			catalogkv.Model{
				ID: "m", Type: catalogkv.Text, Enabled: true, Public: true,
				Prices: []catalogkv.ScheduledPrice{{EffectiveUnix: 9, Sheet: price.Sheet{Version: 3, Rates: price.Rates{price.Input: 100}}}},
				Routes: []catalogkv.Route{{
					ID: "rte_1", Provider: "prv_1", UpstreamModel: "u", Formats: []catalogkv.Format{catalogkv.Chat}, Priority: 1, Weight: 2, Enabled: true,
					Addresses: catalogkv.Addresses{catalogkv.Chat: {Path: "/d/{model}", StreamPath: "/s", Query: map[string]string{"api-version": "1"}}},
				}},
				Params:      map[catalogkv.Format]catalogkv.Params{catalogkv.Chat: {"n": {Policy: "reject", Allow: []json.RawMessage{json.RawMessage("1")}}}},
				Maintenance: &catalogkv.Maintenance{Message: "soon", UntilUnix: 5},
			},
		},
		{
			`{"id":"prv_1","name":"p","base_url":"https://p","addresses":{"videos":{"path":"/v"}},"enabled":true,"auth":"x-api-key","headers":{"a":"b"},"credentials":[{"id":"crd_1","sealed":"AQI="}],
			"keeps_billing":true,"wants_user":true,"http2":true,"connect_timeout_ms":1,"first_byte_timeout_ms":2,"idle_timeout_ms":3,"total_timeout_ms":4}`,
			catalogkv.Provider{
				ID: "prv_1", Name: "p", BaseURL: "https://p", Addresses: catalogkv.Addresses{catalogkv.Videos: {Path: "/v"}}, Enabled: true, Auth: "x-api-key", Headers: map[string]string{"a": "b"},
				Credentials:  []catalogkv.Credential{{ID: "crd_1", Sealed: []byte{1, 2}}},
				KeepsBilling: true, WantsUser: true, HTTP2: true,
				ConnectTimeoutMS: 1, FirstByteTimeoutMS: 2, IdleTimeoutMS: 3, TotalTimeoutMS: 4,
			},
		},
		{`{"account_id":"acc_1","models":["m"]}`, catalogkv.Grant{AccountID: "acc_1", Models: []string{"m"}}},
		{`{"currency":"EUR","image_input_tokens":4}`, catalogkv.Settings{Currency: "EUR", ImageInputTokens: 4}},
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
	if got := catalogkv.CredentialContext("crd_1"); got != "credential:crd_1" {
		t.Errorf("the seal context is %q; sealed credentials could not be opened any more", got)
	}
}
