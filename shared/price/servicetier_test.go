package price

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"modelgateway/shared/money"
)

var tieredSheet = Sheet{
	Rates: Rates{Input: 1_000_000, CachedInput: 100_000, Output: 4_000_000},
	Tiers: []Tier{{AboveInput: 100, Rates: Rates{Input: 2_000_000}}},
	ServiceTiers: []ServiceTier{
		{
			Name:  "flex",
			Rates: Rates{Input: 500_000, CachedInput: 50_000, Output: 2_000_000},
			Tiers: []Tier{{AboveInput: 100, Rates: Rates{Input: 1_000_000}}},
		},
		{
			Name:  "priority",
			Rates: Rates{Input: 3_000_000, CachedInput: 300_000, Output: 9_000_000},
			Tiers: []Tier{{AboveInput: 100, Rates: Rates{Input: 7_000_000}}, {AboveInput: 200, Rates: Rates{Input: 8_000_000}}},
		},
	},
}

func TestServiceTierHasItsOwnPrices(t *testing.T) {
	t.Parallel()
	if err := func() error { s := tieredSheet; return s.Validate() }(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tier  string
		usage Usage
		want  money.Nano
	}{
		{"", Usage{Input: 10, CachedInput: 10, Output: 1}, 10 + 1 + 4},
		{DefaultTier, Usage{Input: 10, CachedInput: 10, Output: 1}, 10 + 1 + 4},
		{"flex", Usage{Input: 10, CachedInput: 20, Output: 1}, 5 + 1 + 2},
		{"priority", Usage{Input: 10, CachedInput: 10, Output: 1}, 30 + 3 + 9},
		{DefaultTier, Usage{Input: 101}, 202},
		{"flex", Usage{Input: 101}, 101},
		{"priority", Usage{Input: 101, Output: 1}, 707 + 9},
		{"priority", Usage{Input: 201}, 1608},
	} {
		tt.usage.ServiceTier = tt.tier
		if got, err := Cost(&tt.usage, &tieredSheet); err != nil || got != tt.want {
			t.Errorf("%+v: got %d, %v; want %d", tt.usage, got, err, tt.want)
		}
	}
	if _, err := Cost(&Usage{Input: 1, ServiceTier: "scale"}, &tieredSheet); !errors.Is(err, ErrUnpriced) {
		t.Errorf("a tier without prices: got %v; want %v", err, ErrUnpriced)
	}
}

// The reservation of a request covers its usage in whatever service tier the provider chooses.
func TestDearestCoversEveryServiceTier(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for range 20_000 {
		u, s := randomUsage(r), randomSheet(r)
		others := [][]string{nil, {"flex"}, {"priority"}, {"flex", "priority"}}[r.IntN(4)]
		tier, cost, err := Dearest(u, s, others)
		if err != nil {
			t.Fatal(err)
		}
		u.ServiceTier = tier
		if of, err := Cost(u, s); err != nil || of != cost || tier != "" && !slices.Contains(others, tier) {
			t.Fatalf("%+v: %q costs %d, %v; Dearest says %d", u, tier, of, err, cost)
		}
		for _, u.ServiceTier = range append([]string{"", DefaultTier}, others...) {
			if of, err := Cost(u, s); err != nil || of > cost {
				t.Fatalf("%+v costs %d, %v; the dearest of %v %d", u, of, err, others, cost)
			}
		}
	}
	if _, _, err := Dearest(&Usage{Input: 1}, &tieredSheet, []string{"scale"}); !errors.Is(err, ErrUnpriced) {
		t.Errorf("a tier without prices: got %v; want %v", err, ErrUnpriced)
	}
}

func TestValidateRefusesIncompleteServiceTiers(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(s *Sheet){
		"none for [cached_input]": func(s *Sheet) { s.ServiceTiers[0].Rates = Rates{Input: 1, Output: 1} },
		"tier above 100":          func(s *Sheet) { s.ServiceTiers[0].Tiers = nil },
		"above 100 it needs a rate for each line of the default tier, and has none for [output]": func(s *Sheet) {
			s.Tiers = []Tier{{AboveInput: 100, Rates: Rates{Input: 2_000_000, Output: 5_000_000}}}
			s.ServiceTiers = s.ServiceTiers[:1]
		},
		"two prices":        func(s *Sheet) { s.ServiceTiers[0].Name = "priority" },
		"names the default": func(s *Sheet) { s.ServiceTiers[0].Name = "standard" },
		"lower-case":        func(s *Sheet) { s.ServiceTiers[0].Name = "Flex" },
		"is negative":       func(s *Sheet) { s.ServiceTiers[0].Rates[Output] = -1 },
		"each line":         func(s *Sheet) { s.Rates, s.Images = nil, []UnitPrice{{}} },
	} {
		s := tieredSheet
		s.ServiceTiers = slices.Clone(s.ServiceTiers)
		s.ServiceTiers[0].Rates = Rates{Input: 500_000, CachedInput: 50_000, Output: 2_000_000}
		change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
}
