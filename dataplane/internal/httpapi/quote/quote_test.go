package quote_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/httpapi/quote"
	"modelgateway/dataplane/internal/usagereport"
	"modelgateway/shared/price"
)

var tierNames = []string{"fast", "flex", "priority", "scale"}

// risingSheet has prices for all service tiers, of which those for long inputs are not lower.
func risingSheet(r *rand.Rand) *price.Sheet {
	rates := func() (price.Rates, []price.Tier) {
		short := price.Rates{price.Input: r.Int64N(1e10), price.Output: r.Int64N(1e11)}
		long := price.Rates{price.Input: short[price.Input] + r.Int64N(1e10), price.Output: short[price.Output] + r.Int64N(1e10)}
		return short, []price.Tier{{AboveInput: 1000, Rates: long}}
	}
	s := &price.Sheet{Version: 1, Multiplier: price.Multiplier(1 + r.Int64N(3*int64(price.One)))}
	s.Rates, s.Tiers = rates()
	for _, name := range tierNames {
		t := price.ServiceTier{Name: name}
		t.Rates, t.Tiers = rates()
		s.ServiceTiers = append(s.ServiceTiers, t)
	}
	return s
}

// No answer costs more than is held for its request, whatever service tier it names, if it has the tokens that were expected
// or fewer. It is charged at the tier that it names if the request allows that one, and never above the dearest of those.
func TestNoServiceTierCostsMoreThanIsHeld(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	names := append([]string{"", format.AutoTier, price.DefaultTier, "batch", "strange"}, tierNames...)
	for range 50_000 {
		s := risingSheet(r)
		var tiers format.ServiceTiers
		for _, name := range tierNames {
			if r.IntN(3) == 0 {
				tiers.Others = append(tiers.Others, name)
			}
		}
		if len(tiers.Others) > 0 && r.IntN(2) == 0 {
			tiers.Asked = tiers.Others[r.IntN(len(tiers.Others))]
		}

		expected := price.Usage{Input: r.Int64N(3000), Output: 1 + r.Int64N(3000)}
		_, held, err := price.Dearest(&expected, s, tiers.Others)
		if err != nil {
			t.Fatal(err)
		}
		q := quote.Quote{Tiers: tiers}
		named := names[r.IntN(len(names))]
		used := price.Usage{Input: r.Int64N(expected.Input + 1), Output: r.Int64N(expected.Output + 1)}
		left := r.IntN(2) == 0
		tier, known := q.Tier(&usagereport.Evidence{ServiceTier: named}, left, &used, s)
		if tiers.Asked == format.FastTier {
			named = format.FastTier // the answer does not say otherwise
		}
		used.ServiceTier = tier
		cost, err := price.Cost(&used, s)
		if err != nil || cost > held {
			t.Fatalf("%v, answer in %q: %+v costs %d, %v; held are %d", tiers, named, used, cost, err, held)
		}

		switch allowed := named == price.DefaultTier || slices.Contains(tiers.Others, named); {
		case named == format.AutoTier && left && tiers.Asked == "":
			if dearest, _, err := price.Dearest(&used, s, tiers.Others); err != nil || tier != cmp.Or(dearest, price.DefaultTier) || !known {
				t.Fatalf("%v, left: got %q, %v; want %q", tiers, tier, known, dearest)
			}
		case named == "" || named == format.AutoTier:
			if want := cmp.Or(tiers.Asked, price.DefaultTier); tier != want || !known {
				t.Fatalf("%v, no name: got %q, %v; want %q", tiers, tier, known, want)
			}
		case allowed:
			if tier != named || !known {
				t.Fatalf("%v: got %q, %v; want %q", tiers, tier, known, named)
			}
		case known || tier != price.DefaultTier && !slices.Contains(tiers.Others, tier):
			t.Fatalf("%v, answer in %q: got %q, %v", tiers, named, tier, known)
		}
	}
}

func TestSheetWithoutServiceTiersHasNone(t *testing.T) {
	t.Parallel()
	q := quote.Quote{}
	for _, named := range []string{"", price.DefaultTier, "priority"} {
		if tier, known := q.Tier(&usagereport.Evidence{ServiceTier: named}, true, &price.Usage{Input: 1}, &price.Sheet{Rates: price.Rates{price.Input: 1}}); tier != "" || !known {
			t.Errorf("%q: got %q, %v", named, tier, known)
		}
	}
}
