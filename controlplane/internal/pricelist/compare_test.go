package pricelist_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/pricelist"
	"modelgateway/controlplane/internal/strict"
)

const configured = `
currency: USD
providers:
- {id: openai, base_url: "https://api.openai.com", credentials: [{name: main}]}
- {id: claude-eu, base_url: "https://API.anthropic.com:443", credentials: [{name: main}]}
- {id: relay, base_url: "https://relay.example", credentials: [{name: main}]}
models:
- {id: public-name, type: text, price: {input: "1", output: "2", cached_input: "0.1", server_tool: "0.01"}, routes: [{provider: openai, upstream_model: example, formats: [chat]}]}
- {id: writer, type: text, price: {input: "3.00", output: "15.00"}, routes: [{provider: claude-eu, upstream_model: writer-2, formats: [messages]}]}
- {id: relayed, type: text, price: {input: "1", output: "2"}, routes: [{provider: relay, upstream_model: relayed, formats: [chat]}]}
- {id: two, type: text, price: {input: "1", output: "2"}, routes: [{provider: openai, upstream_model: example, formats: [chat]}, {provider: openai, upstream_model: relayed, formats: [chat]}]}
- {id: poster, type: image, price: {images: [{price: "0.04"}, {size: 1x1, price: "0.01"}]}, routes: [{provider: openai, upstream_model: poster, formats: [images]}]}
- {id: movie, type: video, price: {seconds: [{price: "0.5"}]}, routes: [{provider: openai, upstream_model: movie, formats: [videos]}]}
- {id: long, type: text, price: {input: "1", output: "2"}, routes: [{provider: openai, upstream_model: long, formats: [chat]}]}
- {id: own, type: text, price: {input: "1", output: "2"}}
grants: [{account_id: acc_00000000000070008000000000000000, models: [own]}]
`

const prices = `{
	"example": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 2e-06, "output_cost_per_token": 0},
	"writer-2": {"litellm_provider": "anthropic", "mode": "chat", "input_cost_per_token": 3e-06, "output_cost_per_token": 15e-06},
	"relayed": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1.5e-06, "output_cost_per_token": 2e-06},
	"poster": {"litellm_provider": "openai", "mode": "image_generation", "output_cost_per_image": 0.02},
	"movie": {"litellm_provider": "openai", "mode": "image_generation", "output_cost_per_image": 0.5},
	"long": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "input_cost_per_token_above_0k_tokens": 1e-06},
	"groq/speedy": {"litellm_provider": "groq", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}
}`

func TestComparisonWithTheCatalog(t *testing.T) {
	t.Parallel()
	var doc catalog.Document
	if err := strict.YAML([]byte(configured), &doc); err != nil {
		t.Fatal(err)
	}
	c, err := read(t, []byte(prices), pricelist.Options{}).Compare(&doc)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		ID, Entry string
		Status    pricelist.Status
		Text      string
	}
	var got []row
	for _, m := range c.Models {
		got = append(got, row{m.ID, m.Entry, m.Status, strings.TrimSpace(m.Problem + strings.Join(m.Warnings, " "))})
	}
	want := []row{
		{
			"public-name", "example", pricelist.Changed,
			"The list has no price for cached_input, so that of the catalog is kept. The price input becomes twice as high or more. The price output becomes 0: it is free.",
		},
		{"writer", "writer-2", pricelist.Same, ""},
		{"relayed", "relayed", pricelist.Changed, "The entry has the name of the model, but no route of the model leads to it at openai."},
		{"two", "example", pricelist.Refused, "Its routes lead to the entries example and relayed, which have different prices."},
		{"poster", "poster", pricelist.Changed, "The list has no price for images 1x1, so that of the catalog is kept. The price unit falls to half or less."},
		{"movie", "movie", pricelist.Refused, "The entry is for the type image, the model has the type video."},
		{"long", "long", pricelist.Refused, "The price is invalid: price.tiers[0].above_input: must be positive and greater than that of the tier before."},
		{"own", "", pricelist.Absent, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(c.Unknown) != 1 || c.Unknown[0].Entry != "groq/speedy" || c.Unknown[0].Provider != "groq" {
		t.Errorf("unknown: %+v; want the entry of groq", c.Unknown)
	}
	if c.Document.Grants != nil {
		t.Error("the document has grants, so it would take back those that are given in the meantime")
	}
	for i, want := range map[int]string{0: "2.00", 1: "3.00", 2: "1.50", 3: "1.00", 7: "1.00"} {
		if text, _ := c.Document.Models[i].Price.Input.MarshalText(); string(text) != want {
			t.Errorf("%s: the document has the price %s; want %s", c.Models[i].ID, text, want)
		}
	}
	if p := c.Document.Models[0].Price; p.ServerTool == nil || p.CachedInput == nil {
		t.Errorf("%+v: prices that the list does not have are lost", p)
	}
	if _, err := read(t, []byte(prices), pricelist.Options{Currency: "EUR"}).Compare(&doc); err == nil || !strings.Contains(err.Error(), "currency") {
		t.Errorf("a list in another currency: %v", err)
	}
}

func TestEntryWithoutProviderIsOmitted(t *testing.T) {
	t.Parallel()
	want := []pricelist.Omission{{Model: "m", Reason: "it has no litellm_provider"}}
	if diff := cmp.Diff(want, read(t, []byte(`{"m": {"mode": "chat"}}`), pricelist.Options{}).Omitted); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNumberOfEntriesIsBounded(t *testing.T) {
	t.Parallel()
	list := func(n int) []byte {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `,"%d-x-1/m%d":{"litellm_provider":"openai","mode":"image_generation","output_cost_per_image":1}`, i+1, i)
		}
		return []byte("{" + text.String()[1:] + "}")
	}
	read(t, list(20_000), pricelist.Options{})
	if _, err := pricelist.Read(list(20_001), pricelist.Options{}); err == nil || !strings.Contains(err.Error(), "may have 20000") {
		t.Errorf("a list with too many entries: %v", err)
	}
}

// A number whose exponent would take long to compute is no price.
func TestHugeExponentsAreOmitted(t *testing.T) {
	t.Parallel()
	entry := `{"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-999999, "output_cost_per_token": 1e999999, "max_tokens": 1e999999}`
	p := read(t, []byte(`{"m": `+entry+`}`), pricelist.Options{})
	if len(p.Document.Models) != 0 || len(p.Omitted) != 1 {
		t.Errorf("got %+v, omitted %v", p.Document.Models, p.Omitted)
	}
}

// The prices of a service tier are those of the list, which lacks some tiers and members.
func TestServiceTiersOfTheListAndTheCatalogAreJoined(t *testing.T) {
	t.Parallel()
	const before = `
currency: USD
providers:
- {id: openai, base_url: "https://api.openai.com", credentials: [{name: main}]}
models:
- id: m
  type: text
  price:
    input: "1"
    cached_input: "0.1"
    output: "2"
    service_tiers:
    - {name: priority, input: "2", cached_input: "0.2", output: "4", reasoning: "5"}
    - {name: flex, input: "0.5", cached_input: "0.05", output: "1"}
    - {name: scale, input: "3", cached_input: "0.3", output: "6"}
  routes: [{provider: openai, upstream_model: m, formats: [chat]}]
`
	members := `"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "cache_read_input_token_cost": 1e-07`
	for _, tt := range []struct {
		more    string
		status  pricelist.Status
		tiers   string // input, cached_input, output and reasoning of each
		problem string
	}{
		{``, pricelist.Same, "", ""},
		{
			`, "input_cost_per_token_priority": 4e-06, "output_cost_per_token_priority": 4e-06, "cache_read_input_token_cost_priority": 4e-07`,
			pricelist.Changed, "priority 4.00 0.40 4.00 5.00, flex 0.50 0.05 1.00 -, scale 3.00 0.30 6.00 -",
			"The list has no price for service_tiers flex, so that of the catalog is kept. " +
				"The price priority cached_input becomes twice as high or more. The price priority input becomes twice as high or more.",
		},
		{ // a tier of the catalog would lack the price for long inputs
			`, "input_cost_per_token_above_200k_tokens": 2e-06`, pricelist.Refused, "", "service_tiers[0].tiers",
		},
	} {
		var doc catalog.Document
		if err := strict.YAML([]byte(before), &doc); err != nil {
			t.Fatal(err)
		}
		c, err := read(t, []byte(`{"m": {`+members+tt.more+`}}`), pricelist.Options{}).Compare(&doc)
		if err != nil {
			t.Fatal(err)
		}
		got, texts := c.Models[0], []string{}
		amount := func(a *catalog.Amount) string {
			if a == nil {
				return "-"
			}
			text, err := a.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		for _, s := range got.After.ServiceTiers {
			texts = append(texts, strings.Join([]string{s.Name, amount(s.Input), amount(s.CachedInput), amount(s.Output), amount(s.Reasoning)}, " "))
		}
		problem := strings.TrimSpace(got.Problem + strings.Join(got.Warnings, " "))
		if got.Status != tt.status || strings.Join(texts, ", ") != tt.tiers || !strings.Contains(problem, tt.problem) || tt.problem == "" && problem != "" {
			t.Errorf("%s: got %s, %q, %q", tt.more, got.Status, texts, problem)
		}
	}
}
