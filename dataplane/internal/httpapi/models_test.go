package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/shared/apikey"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
	"modelgateway/shared/subject"
	"modelgateway/shared/wire"
)

type modelList struct {
	Object  string
	Data    []map[string]any
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
}

func (g *gateway) listModels(headers ...string) (ids []string, list modelList) {
	g.t.Helper()
	got := g.send(http.MethodGet, "/v1/models", "", headers...)
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || got.status != http.StatusOK || list.Object != "list" || list.HasMore {
		g.t.Fatalf("got %d %s: %v", got.status, got.body, err)
	}
	for _, m := range list.Data {
		ids = append(ids, m["id"].(string))
	}
	return ids, list
}

func TestModelsListsPublicAndGrantedModels(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(200, chatJSON))
	for _, m := range []catalogkv.Model{
		{ID: "opened", Enabled: true}, {ID: "closed", Enabled: true}, {ID: "disabled", Public: true}, {ID: "unpriced", Enabled: true, Public: true},
	} {
		m.Type = catalogkv.Text
		m.Routes = []catalogkv.Route{{ID: "rte_x", Provider: "prv_0", UpstreamModel: "up", Formats: []catalogkv.Format{catalogkv.Chat}, Enabled: true}}
		if m.ID != "unpriced" {
			m.Prices = []catalogkv.ScheduledPrice{{Sheet: price.Sheet{Version: 9, Rates: price.Rates{price.Input: 1, price.Output: 1}}}}
		}
		g.set(subject.KindModel, m.ID, m)
	}
	g.set(subject.KindGrant, theAccount, catalogkv.Grant{AccountID: theAccount, Models: []string{"opened", "disabled"}})
	g.apply()
	public := []string{"image", "text", "video"}
	for name, tt := range map[string]struct {
		headers []string
		want    []string
	}{
		"with a key":    {nil, []string{"image", "opened", "text", "video"}},
		"without a key": {[]string{"Authorization", ""}, public},
	} {
		got, list := g.listModels(tt.headers...)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if *list.FirstID != got[0] || *list.LastID != got[len(got)-1] {
			t.Errorf("%s: got %s to %s", name, *list.FirstID, *list.LastID)
		}
	}
	// A key that is sent must be valid, even an empty one.
	for name, header := range map[string]http.Header{
		"empty bearer":    {"Authorization": {"Bearer "}},
		"empty":           {"Authorization": {""}},
		"empty x-api-key": {"X-Api-Key": {""}},
		"malformed":       {"X-Api-Key": {"sk-1"}},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+"/v1/models", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = header
		response, err := g.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: got %d", name, response.StatusCode)
		}
	}
}

func TestModelEntriesHavePricesAndEndpoints(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{model: func(m *catalogkv.Model) {
		if m.ID == "text" {
			m.DisplayName, m.OwnedBy, m.ContextWindow, m.MaxOutputTokens = "Text", "us", 1000, 100
			m.Prices = []catalogkv.ScheduledPrice{{Sheet: price.Sheet{
				Version: 1, Rates: price.Rates{price.Input: 2_500_000_000, price.Output: 10_000_000_000}, ServerTool: 10_000_000,
				Tiers: []price.Tier{{AboveInput: 200_000, Rates: price.Rates{price.Input: 5_000_000_000}}},
			}}}
		}
		if m.ID == "image" {
			m.Prices[0].Sheet.Images = []price.UnitPrice{{Price: 40_000_000}, {Size: "1024x1024", Quality: "high", Price: 170_000_000}}
		}
	}}, jsonAnswer(200, chatJSON))
	_, list := g.listModels()
	type entry = map[string]any
	created := entry{"created": 1.7e9, "created_at": "2023-11-14T22:13:20Z", "object": "model", "owned_by": ""}
	with := func(more entry) entry {
		for name, value := range created {
			if _, there := more[name]; !there {
				more[name] = value
			}
		}
		return more
	}
	want := []map[string]any{
		with(entry{
			"id": "image", "type": "image", "display_name": "image", "endpoints": []any{"/v1/images/generations"},
			"pricing": entry{"currency": "USD", "per_image": "0.04", "per_image_1024x1024_high": "0.17"},
		}),
		with(entry{
			"id": "text", "type": "text", "display_name": "Text", "owned_by": "us", "context_window": 1000.0, "max_output_tokens": 100.0,
			"endpoints": []any{"/v1/chat/completions", "/v1/responses", "/v1/messages"},
			"pricing": entry{
				"currency": "USD", "input_per_million_tokens": "2.50", "output_per_million_tokens": "10.00",
				"input_per_million_tokens_above_200000_input_tokens": "5.00", "per_server_tool_request": "0.01",
			},
		}),
		with(entry{"id": "video", "type": "video", "display_name": "video", "endpoints": []any{"/v1/videos"}, "pricing": entry{"currency": "USD", "per_second": "0.00000001"}}),
	}
	if diff := cmp.Diff(want, list.Data); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnchangedListOfModelsIsNotSentAgain(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(200, chatJSON))
	first := g.send(http.MethodGet, "/v1/models", "")
	tag := first.header.Get("Etag")
	if first.status != http.StatusOK || len(tag) < 10 {
		t.Fatalf("got %d, etag %q", first.status, tag)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		got := g.send(method, "/v1/models", "", "If-None-Match", tag)
		if got.status != http.StatusNotModified || got.body != "" || got.header.Get("Etag") != tag || got.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: got %d %q, headers %v; want 304 without a body", method, got.status, got.body, got.header)
		}
	}
	g.models.Set(subject.KindModel, "video", nil)
	g.apply()
	if got := g.send(http.MethodGet, "/v1/models", "", "If-None-Match", tag); got.status != http.StatusOK || got.header.Get("Etag") == tag || got.body == first.body {
		t.Errorf("after a change: got %d, etag %q", got.status, got.header.Get("Etag"))
	}
	g.revoke(g.key)
	if got := g.send(http.MethodGet, "/v1/models", "", "If-None-Match", "*"); got.status != http.StatusUnauthorized {
		t.Errorf("with a revoked key: got %d; want 401", got.status)
	}
}

func TestModelsOfAnAccountWithoutModelsIsAnEmptyList(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, name := range []string{"text", "image", "video"} {
		g.models.Set(subject.KindModel, name, nil)
	}
	g.apply()
	got := g.send(http.MethodGet, "/v1/models", "")
	if want := `{"object":"list","data":[],"has_more":false,"first_id":null,"last_id":null}`; got.body != want {
		t.Errorf("got %s; want %s", got.body, want)
	}
}

func TestBalanceEndpointReturnsTheFiguresOfTheControlPlane(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.set(subject.KindSettings, "", catalogkv.Settings{Currency: "EUR", Maintenance: &catalogkv.Maintenance{}})
	g.apply()
	tests := []struct {
		name  string
		reply wire.BalanceResponse
		want  string
	}{
		{
			"with a limit",
			wire.BalanceResponse{Balance: 12_340_000_000, Reserved: 120_000_000, Limited: true, Limit: 5_000_000_000, KeySpent: 1_200_000_000, KeyReserved: 20_000_000},
			`{"object":"balance","currency":"EUR","balance":"12.34","reserved":"0.12","available":"12.22","key":{"spend_limit":"5.00","spent":"1.20","reserved":"0.02","remaining":"3.78"}}`,
		},
		{
			"without",
			wire.BalanceResponse{Balance: 1, Reserved: 0, KeySpent: 1_200_000_000},
			`{"object":"balance","currency":"EUR","balance":"0.000000001","reserved":"0.00","available":"0.000000001","key":{"spend_limit":null,"spent":"1.20","reserved":"0.00","remaining":null}}`,
		},
		{
			"overdrawn, and over the limit",
			wire.BalanceResponse{Balance: -500_000_000, Limited: true, Limit: 1_000_000_000, KeySpent: 1_500_000_000},
			`{"object":"balance","currency":"EUR","balance":"-0.50","reserved":"0.00","available":"-0.50","key":{"spend_limit":"1.00","spent":"1.50","reserved":"0.00","remaining":"-0.50"}}`,
		},
	}
	for _, tt := range tests {
		tt.reply.Status = wire.Done
		g.plane.set(func(p *controlPlane) { p.balance = tt.reply })
		key := g.issue(tt.name, theAccount) // the figures of a key are used for some time
		if got := g.send(http.MethodGet, "/v1/balance", "", "Authorization", "Bearer "+key); got.status != http.StatusOK || got.body != tt.want {
			t.Errorf("%s: got %d %s\nwant %s", tt.name, got.status, got.body, tt.want)
		}
	}
	for name, fail := range map[string]func(p *controlPlane){
		"control plane cannot answer": func(p *controlPlane) { p.balance.Status = wire.Unavailable },
		"silent":                      func(p *controlPlane) { p.down = true },
	} {
		g.plane.set(fail)
		want := apiError{Status: 503, Code: "service_unavailable", RetryAfter: "1"}
		key := g.issue(name, theAccount)
		if diff := cmp.Diff(want, g.send(http.MethodGet, "/v1/balance", "", "Authorization", "Bearer "+key).apiError(t), ignoreTexts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRequestsBeforeTheFirstCatalogAreRefusedWith503(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, options{noCatalog: true})
	for method, path := range map[string]string{http.MethodPost: "/v1/chat/completions", http.MethodGet: "/v1/models"} {
		want := apiError{Status: 503, Code: "service_unavailable", RetryAfter: "1"}
		if diff := cmp.Diff(want, g.send(method, path, chatBody).apiError(t), ignoreTexts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// A change of the multiplier does not affect running requests.
func TestPriceMultiplierAppliesToReservationChargeAndModels(t *testing.T) {
	t.Parallel()
	var g *gateway
	var hash apikey.Hash
	g = newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		g.plane.multiply(hash, 1_000_000, nil) // the key change comes while the request runs
		jsonAnswer(http.StatusOK, chatJSON)(w, r)
	})
	hash = g.hasher.Hash(g.key)
	g.plane.multiply(hash, 500_000, map[string]price.Multiplier{"image": 2_000_000})
	_, list := g.listModels()
	shown := map[string]any{}
	for _, m := range list.Data {
		shown[m["id"].(string)] = m["pricing"]
	}
	want := map[string]any{
		"text":  map[string]any{"currency": "USD", "input_per_million_tokens": "0.0005", "output_per_million_tokens": "0.001"},
		"image": map[string]any{"currency": "USD", "per_image": "0.0000002"},
		"video": map[string]any{"currency": "USD", "per_second": "0.000000005"},
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("prices with the key (-want +got):\n%s", diff)
	}
	_, public := g.listModels("Authorization", "")
	if diff := cmp.Diff(map[string]any{"currency": "USD", "per_image": "0.0000001"}, public.Data[0]["pricing"]); diff != "" {
		t.Errorf("prices without a key (-want +got):\n%s", diff)
	}
	if got := g.post("/v1/chat/completions", `{"model":"text","messages":[],"max_tokens":1000}`); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	e := g.spool.all()[0]
	list0 := &price.Sheet{Rates: price.Rates{price.Input: 1_000_000, price.Output: 2_000_000}}
	half, err := price.Cost(&e.Usage, list0.WithMultiplier(500_000))
	if err != nil || e.PriceMultiplier != 500_000 || e.Cost != half || half == 0 {
		t.Errorf("charged %d under %s, %v; want %d under 0.5", e.Cost, e.PriceMultiplier, err, half)
	}
	if e.Reservation < 1000 || e.Reservation >= 2000 {
		t.Errorf("reserved %d; want half of what 1000 tokens cost", e.Reservation)
	}
}
