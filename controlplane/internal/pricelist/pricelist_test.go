package pricelist_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/pricelist"
	"modelgateway/controlplane/internal/strict"
	"modelgateway/shared/price"
)

var update = flag.Bool("update", false, "rewrite the expected output")

func list(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "list.json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T, text []byte, o pricelist.Options) *pricelist.Proposal {
	t.Helper()
	p, err := pricelist.Read(text, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPriceListBecomesACatalog(t *testing.T) {
	t.Parallel()
	got, err := read(t, list(t), pricelist.Options{}).YAML()
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "list.yaml")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The output is a valid catalog.
	if err := strict.YAML(got, &catalog.Document{}); err != nil {
		t.Error(err)
	}
}

func TestProviderAndModelFilters(t *testing.T) {
	t.Parallel()
	models := func(o pricelist.Options) string {
		var ids []string
		for _, m := range read(t, list(t), o).Document.Models {
			ids = append(ids, m.ID)
		}
		return strings.Join(ids, " ")
	}
	for _, tt := range []struct {
		options pricelist.Options
		want    string
	}{
		{pricelist.Options{Providers: []string{"anthropic"}}, "writer-2"},
		{pricelist.Options{Models: []string{"example-poster"}}, "example-poster"},
		{pricelist.Options{Providers: []string{"groq"}, Models: []string{"s*"}}, "speedy"},
		{pricelist.Options{Models: []string{"groq/speedy", "example-t?ny"}}, "example-tiny speedy"},
		{pricelist.Options{Models: []string{"nothing"}}, ""},
	} {
		if got := models(tt.options); got != tt.want {
			t.Errorf("%+v: got %q; want %q", tt.options, got, tt.want)
		}
	}
}

func TestInvalidListsAreErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "[]", `{"a": 1}`, "{", "null", `{"a": {}} b`} {
		if _, err := pricelist.Read([]byte(text), pricelist.Options{}); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	for _, o := range []pricelist.Options{{Models: []string{"["}}, {Markup: new(big.Rat)}} {
		if _, err := pricelist.Read([]byte("{}"), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// One unusual entry does not affect the others.
func TestUnusualEntriesAreOmitted(t *testing.T) {
	t.Parallel()
	p := read(t, []byte(`{
		"good": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6},
		"text": "see below", "none": null, "list": []}`), pricelist.Options{})
	if len(p.Document.Models) != 1 || p.Document.Models[0].ID != "good" {
		t.Errorf("models: %+v; want the good one", p.Document.Models)
	}
	want := []pricelist.Omission{{Model: "list", Reason: "the entry is not an object"}, {Model: "none", Reason: "the entry is not an object"}, {Model: "text", Reason: "the entry is not an object"}}
	if diff := cmp.Diff(want, p.Omitted); diff != "" {
		t.Errorf("omitted (-want +got):\n%s", diff)
	}
}

// For all prices, markups and numbers of tokens, the charge is their exact product, or the model is omitted.
func TestPriceTimesTokensIsExact(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	taken := 0
	for range 800 {
		perToken := fmt.Sprintf("%d.%de-%02d", rng.IntN(10), rng.IntN(1_000_000), rng.IntN(12))
		markup := big.NewRat(rng.Int64N(300)+1, 100)
		text := fmt.Sprintf(`{"m":{"litellm_provider":"openai","mode":"chat","input_cost_per_token":%s,"output_cost_per_token":%s}}`, perToken, perToken)
		p := read(t, []byte(text), pricelist.Options{Markup: markup})
		if len(p.Document.Models) == 0 {
			if len(p.Omitted) == 0 {
				t.Fatalf("seed %d: %s × %s is neither converted nor omitted", seed, perToken, markup)
			}
			continue
		}
		taken++
		yaml, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		var doc catalog.Document
		if err := strict.YAML(yaml, &doc); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		tokens := rng.Int64N(1_000_000)
		rate, _ := doc.Models[0].Price.Input.MarshalText()
		perMillion, _ := new(big.Rat).SetString(string(rate))
		got := perMillion.Mul(perMillion, big.NewRat(tokens, 1_000_000))
		want, _ := new(big.Rat).SetString(perToken)
		want.Mul(want, markup)
		want.Mul(want, big.NewRat(tokens, 1))
		if got.Cmp(want) != 0 {
			t.Fatalf("seed %d: %s × %s × %d tokens: got %s; want %s", seed, perToken, markup, tokens, got, want)
		}
	}
	if taken < 100 {
		t.Errorf("seed %d: only %d of 800 prices were converted", seed, taken)
	}
}

// The charge of a million tokens is the price of a million tokens.
func TestChargesFollowThePriceList(t *testing.T) {
	t.Parallel()
	p := read(t, list(t), pricelist.Options{Models: []string{"writer-2"}, Providers: []string{"anthropic"}})
	e := p.Document.Models[0].Price
	sheet := price.Sheet{Rates: price.Rates{price.Input: int64(*e.Input), price.Output: int64(*e.Output)}}
	for _, tier := range e.Tiers {
		rates := price.Rates{price.Input: int64(*tier.Input)}
		if tier.Output != nil {
			rates[price.Output] = int64(*tier.Output)
		}
		sheet.Tiers = append(sheet.Tiers, price.Tier{AboveInput: tier.AboveInput, Rates: rates})
	}
	for _, tt := range []struct {
		input int64
		want  string
	}{{200_000, "0.60"}, {200_001, "1.200006"}, {600_000, "5.40"}} {
		cost, err := price.Cost(&price.Usage{Input: tt.input}, &sheet)
		if err != nil || cost.String() != tt.want {
			t.Errorf("%d tokens: got %s, %v; want %s", tt.input, cost, err, tt.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "list.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"a\n# b":{"litellm_provider":"groq","mode":"chat","input_cost_per_token":1e-07,"output_cost_per_token":1e99999}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := pricelist.Read(text, pricelist.Options{})
		if err != nil {
			return
		}
		yaml, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		var doc catalog.Document
		if err := strict.YAML(yaml, &doc); err != nil {
			t.Fatalf("%v\n%s", err, yaml)
		}
		want, _ := json.Marshal(&p.Document)
		got, _ := json.Marshal(&doc)
		if string(want) != string(got) {
			t.Errorf("read back %s; want %s", got, want)
		}
	})
}
