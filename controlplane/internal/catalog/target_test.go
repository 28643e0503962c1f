package catalog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/strict"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// parse parses a document.
func parse(t *testing.T, text string) *Document {
	t.Helper()
	var d Document
	if err := strict.YAML([]byte(text), &d); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return &d
}

const provider = `{id: p, base_url: "https://p.example"}`

func TestDocumentBecomesTarget(t *testing.T) {
	t.Parallel()
	got, err := parse(t, `
currency: USD
settings: {image_input_tokens: 900}
providers:
  - {id: p, base_url: "https://p.example/api/", auth: x-api-key, headers: {x-title: us}, connect_timeout: 250ms, total_timeout: 10m, keeps_billing: true, recognises_repeats: true}
models:
  - id: m
    type: text
    public: false
    price: {input: 1, output: "2.5", audio_in: "0.000000001", server_tool: "0.01", tiers: [{above_input: 10, output: "3"}]}
    routes:
      - {provider: p, upstream_model: up, formats: [chat, messages], weight: 3, enabled: false}
      - {id: own, provider: p, upstream_model: up, formats: [responses], priority: 1}
grants: []
`).target()
	if err != nil {
		t.Fatal(err)
	}
	id := routeID("m", "p", "up")
	want := &target{
		settings: catalogkv.Settings{Currency: "USD", ImageInputTokens: 900},
		providers: map[string]targetProvider{"p": {path: "providers[0]", secrets: map[string]targetSecret{}, spec: catalogkv.Provider{
			ID: "p", Name: "p", BaseURL: "https://p.example/api", Enabled: true, Auth: "x-api-key", Headers: map[string]string{"x-title": "us"},
			ConnectTimeoutMS: 250, TotalTimeoutMS: 600_000, KeepsBilling: true, RecognisesRepeats: true,
		}}},
		models: map[string]targetModel{"m": {
			spec: catalogkv.Model{ID: "m", Type: catalogkv.Text, Enabled: true},
			sheet: price.Sheet{
				Rates: price.Rates{price.Input: 1_000_000_000, price.Output: 2_500_000_000, price.AudioIn: 1}, ServerTool: 10_000_000,
				Tiers: []price.Tier{{AboveInput: 10, Rates: price.Rates{price.Output: 3_000_000_000}}},
			},
			routes: map[string]catalogkv.Route{
				id:    {ID: id, Provider: "p", UpstreamModel: "up", Formats: []catalogkv.Format{catalogkv.Chat, catalogkv.Messages}, Weight: 3},
				"own": {ID: "own", Provider: "p", UpstreamModel: "up", Formats: []catalogkv.Format{catalogkv.Responses}, Priority: 1, Enabled: true},
			},
		}},
		grants: map[accountID][]string{},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(target{}, targetProvider{}, targetSecret{}, targetModel{})); diff != "" {
		t.Errorf("target (-want +got):\n%s", diff)
	}
}

// A position alone does not tell what is wrong in a file of a hundred models.
func TestWrongRouteIsNamedWithWhatIsRight(t *testing.T) {
	t.Parallel()
	_, err := parse(t, "currency: USD\nproviders: ["+provider+"]\nmodels:\n- {id: m, type: text, price: {input: 1, output: 1}, "+
		"routes: [{provider: q, upstream_model: u, formats: [sound]}]}\n").target()
	want := `models[0].routes[0].provider: must be the id of a provider of this document, not "q"; ` +
		`models[0].routes[0].formats[0]: must be chat, responses, messages, images or videos, not "sound"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
}

func TestInvalidDocumentReportsFieldErrors(t *testing.T) {
	t.Parallel()
	text := func(members string) string {
		return "currency: USD\nproviders: [" + provider + "]\nmodels:\n- {id: m, type: text, price: {input: 1, output: 1}" + members + "}\n"
	}
	for _, test := range []struct {
		name string
		doc  string
		want []string // the paths
	}{
		{"no currency", "models: []", []string{"currency"}},
		{"negative setting", "currency: USD\nsettings: {image_input_tokens: -1}", []string{"settings.image_input_tokens"}},
		{
			"provider ids and names", `{currency: USD, providers: [{id: A, base_url: "http://x"}, {id: b, name: c, base_url: "http://x"}, {id: c, base_url: "http://x"}, {id: b, name: d, base_url: "http://x"}]}`,
			[]string{"providers[0].id", "providers[2].name", "providers[3].id"},
		},
		{
			"addresses", `{currency: USD, providers: [{id: a, base_url: x}, {id: b, base_url: "http://u:p@x"}, {id: c, base_url: "https://x/v1/"}, {id: d, base_url: "https://x?y"}]}`,
			[]string{"providers[0].base_url", "providers[1].base_url", "providers[2].base_url", "providers[3].base_url"},
		},
		{
			"paths", `{currency: USD, providers: [{id: a, base_url: "http://x", addresses: {sound: {path: /a}, chat: {}, responses: {path: a, stream_path: "/a?b"},
			messages: {path: "/{model}/{other}", stream_path: /a/../b}, images: {path: "/a b", stream_path: /a}, videos: {path: "/a#b"}}},
			{id: b, base_url: "http://x", addresses: {chat: {path: "/ü"}, responses: {path: "/a%2", stream_path: "/{model"}}}]}`,
			[]string{
				"providers[0].addresses.chat", "providers[0].addresses.images.path", "providers[0].addresses.images.stream_path", "providers[0].addresses.messages.path",
				"providers[0].addresses.messages.stream_path", "providers[0].addresses.responses.path", "providers[0].addresses.responses.stream_path",
				"providers[0].addresses.sound", "providers[0].addresses.videos.path",
				"providers[1].addresses.chat.path", "providers[1].addresses.responses.path", "providers[1].addresses.responses.stream_path",
			},
		},
		{
			"queries", `{currency: USD, providers: [{id: a, base_url: "http://x", addresses: {chat: {query: {Api-Key: x, api-version: preview, "": x, model: "{model}"}}}}]}`,
			[]string{"providers[0].addresses.chat.query", "providers[0].addresses.chat.query.Api-Key", "providers[0].addresses.chat.query.model"},
		},
		{
			"addresses of a route", text(", routes: [{provider: p, upstream_model: u, formats: [chat], addresses: {chat: {path: /a}, messages: {path: /b}}}]"),
			[]string{"models[0].routes[0].addresses.messages"},
		},
		{"auth", `{currency: USD, providers: [{id: a, base_url: "http://x", auth: "a b"}]}`, []string{"providers[0].auth"}},
		{"own headers", `{currency: USD, providers: [{id: a, base_url: "http://x", headers: {authorization: x}}]}`, []string{"providers[0].headers.authorization"}},
		{
			"headers with secrets", `{currency: USD, providers: [{id: a, base_url: "http://x", headers: {Api-Key: x, x-title: y, cookie: z}}]}`,
			[]string{"providers[0].headers.Api-Key", "providers[0].headers.cookie"},
		},
		{"malformed headers", `{currency: USD, providers: [{id: a, base_url: "http://x", headers: {"a b": x}}]}`, []string{"providers[0].headers.a b"}},
		{"header with a line break", `{currency: USD, providers: [{id: a, base_url: "http://x", headers: {x-a: "b\r\nc: d"}}]}`, []string{"providers[0].headers.x-a"}},
		{
			"credentials", `{currency: USD, providers: [{id: a, base_url: "http://x", credentials: [{name: x, secret: "${KEY}"}, {name: x, secret: s}, {name: "", secret: s}]}]}`,
			[]string{"providers[0].credentials[0].secret", "providers[0].credentials[1].name", "providers[0].credentials[2].name"},
		},
		{
			"kinds of credentials", `{currency: USD, providers: [{id: a, kind: azure, base_url: "http://x", credentials: [
				{name: a, kind: aws, parameters: {role_arn: "${ROLE}"}}, {name: b, kind: later}, {name: c, kind: google, secret: s},
				{name: d, parameters: {region: x}}, {name: e, kind: oauth, parameters: {token_url: "x"}}, {name: f, kind: azure}]}]}`,
			[]string{
				"providers[0].kind", "providers[0].credentials[0].parameters.role_arn", "providers[0].credentials[0].parameters.region",
				"providers[0].credentials[1].kind", "providers[0].credentials[2].secret", "providers[0].credentials[3].parameters",
				"providers[0].credentials[4].parameters.client_id", "providers[0].credentials[4].parameters.client_secret",
				"providers[0].credentials[4].parameters.token_url",
			},
		},
		{
			"model ids", "currency: USD\nmodels:\n- {id: a b, type: text, price: {input: 1, output: 1}}\n- {id: c, type: text, price: {input: 1, output: 1}}\n- {id: c, type: text, price: {input: 1, output: 1}}",
			[]string{"models[0].id", "models[2].id"},
		},
		{
			"names that cannot be told apart or addressed", `{currency: USD,
			providers: [{id: a, name: "x\u202ey", base_url: "http://x", credentials: [{name: "..", secret: s}, {name: " b", secret: s}, {name: "c\nd", secret: s}]}, {id: b, name: "کتاب\u200cها", base_url: "http://x"}],
			models: [{id: "..", type: text, price: {input: 1, output: 1}}, {id: "gpt-\u043e", type: text, price: {input: 1, output: 1}}, {id: "a\u200bb", type: text, price: {input: 1, output: 1}},
			{id: "a/../<b>", type: text, display_name: "a\u0007", owned_by: "\u2066", price: {input: 1, output: 1}, routes: [{id: "é", provider: b, upstream_model: u, formats: [chat]}]}]}`,
			[]string{
				"providers[0].name", "providers[0].credentials[0].name", "providers[0].credentials[1].name", "providers[0].credentials[2].name",
				"models[0].id", "models[1].id", "models[2].id", "models[3].display_name", "models[3].owned_by", "models[3].routes[0].id",
			},
		},
		{
			"time limits", `{currency: USD, providers: [{id: p, base_url: "http://x", connect_timeout: 61s, first_byte_timeout: 1h1s, idle_timeout: 2h, total_timeout: 25h},
			{id: q, base_url: "http://x", connect_timeout: 1m, first_byte_timeout: 1h, idle_timeout: 1h, total_timeout: 24h}],
			models: [{id: m, type: text, price: {input: 1, output: 1}, routes: [{provider: p, upstream_model: u, formats: [chat], first_token_timeout: 3601s}, {provider: q, upstream_model: u, formats: [chat], first_token_timeout: 1h}]}]}`,
			[]string{
				"providers[0].connect_timeout", "providers[0].first_byte_timeout", "providers[0].idle_timeout", "providers[0].total_timeout",
				"models[0].routes[0].first_token_timeout",
			},
		},
		{"type", "currency: USD\nmodels:\n- {id: m, type: sound, price: {input: 1}}", []string{"models[0].type"}},
		{
			"negative sizes", text(", context_window: -1, max_output_tokens: -1, reserve_output_tokens: -1"),
			[]string{"models[0].context_window", "models[0].max_output_tokens", "models[0].reserve_output_tokens"},
		},
		{
			"prices of text", "currency: USD\nmodels:\n- {id: m, type: text, price: {cached_input: -1}}",
			[]string{"models[0].price.cached_input", "models[0].price.input", "models[0].price.output"},
		},
		{
			"prices of images", "currency: USD\nmodels:\n- {id: m, type: image, price: {images: [{size: s, price: 1}, {size: s, price: -1}]}}",
			[]string{"models[0].price.images[1].price", "models[0].price.images[1]", "models[0].price.images"},
		},
		{"prices of video", "currency: USD\nmodels:\n- {id: m, type: video, price: {images: [{price: 1}]}}", []string{"models[0].price.seconds"}},
		{
			"tiers", "currency: USD\nmodels:\n- {id: m, type: text, price: {input: 1, output: 1, server_tool: -1, tiers: [{above_input: 5, input: 1}, {above_input: 5}]}}",
			[]string{"models[0].price.server_tool", "models[0].price.tiers[1].above_input", "models[0].price.tiers[1]"},
		},
		{
			"service tiers", `currency: USD
models:
- id: m
  type: text
  price:
    {input: 1, cached_input: 1, output: 1, tiers: [{above_input: 5, input: 1, output: 1}], service_tiers: [
      {name: flex, input: 1, cached_input: 1, output: 1, tiers: [{above_input: 5, input: 2}]}, {name: default, input: 1, output: -1, tiers: [{above_input: 6, input: 1}]}, {name: flex}]}
- {id: i, type: image, price: {input: 1, output: 1, images: [{price: 1}], service_tiers: [{name: flex, input: 1, output: 1}]}}`,
			[]string{
				"models[0].price.service_tiers[0].tiers[0].output",
				"models[0].price.service_tiers[1].name", "models[0].price.service_tiers[1].cached_input", "models[0].price.service_tiers[1].output",
				"models[0].price.service_tiers[1].tiers", "models[0].price.service_tiers[2].name", "models[0].price.service_tiers[2].input",
				"models[0].price.service_tiers[2].cached_input", "models[0].price.service_tiers[2].output", "models[0].price.service_tiers[2].tiers",
				"models[1].price.service_tiers",
			},
		},
		{
			"routes", text(", routes: [{provider: q, priority: -1, weight: -1}]"),
			[]string{"models[0].routes[0].provider", "models[0].routes[0].upstream_model", "models[0].routes[0].formats", "models[0].routes[0].priority", "models[0].routes[0].weight"},
		},
		{
			"formats", text(", routes: [{provider: p, upstream_model: u, formats: [images, sound, chat, chat]}]"),
			[]string{"models[0].routes[0].formats[0]", "models[0].routes[0].formats[1]", "models[0].routes[0].formats[3]"},
		},
		{
			"routes alike", text(", routes: [{provider: p, upstream_model: u, formats: [chat]}, {provider: p, upstream_model: u, formats: [messages]}]"),
			[]string{"models[0].routes[1].id"},
		},
		{
			"secondary models", "currency: USD\nmodels:\n- {id: m, type: text, price: {input: 1, output: 1, secondary: [{kind: sound}, {kind: svg, model: x, input: 1, output: -1}, {kind: advisor, input: 1, output: 1}, {kind: advisor, input: 1, output: 1}]}}",
			[]string{
				"models[0].price.secondary[0].kind", "models[0].price.secondary[0].input", "models[0].price.secondary[0].output",
				"models[0].price.secondary[1].output", "models[0].price.secondary[1].model", "models[0].price.secondary[3]",
			},
		},
		{
			"params of a route", `
currency: USD
providers: [{id: p, base_url: "http://x"}]
models: [{id: m, type: image, price: {images: [{price: "1"}]}, routes: [{provider: p, upstream_model: u, formats: [images], params: {images: {n: {policy: clamp, value: 4}}}}]}]`,
			[]string{"models[0].routes[0].params.images.n"},
		},
		{
			"params", text(", params: {images: {}, chat: {a: {policy: maybe}, b: {policy: force}, c: {policy: forward, otherwise: drop}, tools: {policy: forward, otherwise: forward}}}"),
			[]string{
				"models[0].params.chat.a.policy", "models[0].params.chat.b.value", "models[0].params.chat.c.otherwise", "models[0].params.chat.tools.otherwise",
				"models[0].params.images",
			},
		},
		{
			"grants", text("") + "grants:\n- {account_id: acc_0192f0c1d2e37a4b8c5d6e7f8091a2b3, models: [m, x, m]}\n- {account_id: acc_0192f0c1d2e37a4b8c5d6e7f8091a2b3, models: []}\n",
			[]string{"grants[0].models[1]", "grants[0].models[2]", "grants[1].account_id"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, test.doc).target()
			invalid, ok := validation.As(err)
			if !ok {
				t.Fatalf("got %v; want invalid", err)
			}
			var got []string
			for _, f := range invalid {
				got = append(got, f.Path)
			}
			less := func(a, b string) bool { return a < b } // members of a map come in any order
			if diff := cmp.Diff(test.want, got, cmpSorted(less)); diff != "" {
				t.Errorf("paths (-want +got):\n%s\n%v", diff, invalid)
			}
		})
	}
}

func TestAmountAndDurationAreParsedExactly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		doc  string
		path string
	}{
		{`{currency: USD, models: [{id: m, type: text, price: {input: "1.0000000001"}}]}`, "models[0].price.input"},
		{`{currency: USD, models: [{id: m, type: text, price: {input: 1e3}}]}`, "models[0].price.input"},
		{`{currency: USD, providers: [{id: a, base_url: x, idle_timeout: 5}]}`, "providers[0].idle_timeout"},
		{`{currency: USD, providers: [{id: a, base_url: x, idle_timeout: -5s}]}`, "providers[0].idle_timeout"},
		{`{currency: USD, providers: [{id: a, base_url: x, idle_timeout: 5us}]}`, "providers[0].idle_timeout"},
		{`{currency: USD, grants: [{account_id: me, models: []}]}`, "grants[0].account_id"},
	} {
		invalid, ok := validation.As(strict.YAML([]byte(test.doc), &Document{}))
		if !ok || len(invalid) != 1 || invalid[0].Path != test.path {
			t.Errorf("%s: got %v; want a field error of %s", test.doc, invalid, test.path)
		}
	}
}

// A price sheet survives the conversion to a document and back.
func TestPriceRoundTrip(t *testing.T) {
	t.Parallel()
	all := `input: "1.00"
cached_input: "0.10"
cache_write_5m: "1.25"
cache_write_1h: "2.00"
cache_write_30m: "1.50"
cache_write_12h: "3.00"
cache_write_other: "4.00"
output: "5.00"
reasoning: "6.00"
audio_in: "7.00"
audio_out: "8.00"
image_in: "9.00"
image_out: "10.00"
`
	entry := parse(t, "currency: USD\nmodels:\n- id: m\n  type: text\n  price:\n    "+strings.ReplaceAll(strings.TrimSpace(all), "\n", "\n    ")+
		"\n    tiers: [{above_input: 7, input: \"0.50\"}]\n    service_tiers:\n    - name: priority\n      "+strings.ReplaceAll(all, "\n", "\n      ")+
		"tiers: [{above_input: 7, input: \"2.50\"}]\n    images: [{size: s, quality: q, price: \"0.04\"}]\n    seconds: [{price: \"0.10\"}]\n    server_tool: \"0.01\"\n").Models[0].Price
	b := builder{}
	sheet := b.sheet("price", catalogkv.Text, &entry)
	if err := sheet.Validate(); err != nil || len(b.invalid) != 0 {
		t.Fatalf("%v, %v", err, b.invalid)
	}
	if len(sheet.Rates) != 13 {
		t.Errorf("got %d rates; want 13", len(sheet.Rates))
	}
	if diff := cmp.Diff(entry, priceEntry(&sheet)); diff != "" {
		t.Errorf("price (-want +got):\n%s", diff)
	}
}
