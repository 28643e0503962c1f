package price

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"modelgateway/shared/money"
)

var textSheet = Sheet{
	Version: 1,
	// 1.00, 0.10, 1.25 and 5.00 of the currency per million tokens.
	Rates: Rates{Input: 1_000_000_000, CachedInput: 100_000_000, CacheWrite5m: 1_250_000_000, Output: 5_000_000_000, AudioIn: 10_000_000_000},
	Tiers: []Tier{{AboveInput: 200_000, Rates: Rates{Input: 2_000_000_000, Output: 7_500_000_000}}},
}

var imageSheet = Sheet{Version: 2, Images: []UnitPrice{{Price: 40_000_000}, {Size: "1024x1024", Price: 30_000_000}, {Size: "1024x1024", Quality: "high", Price: 90_000_000}, {Quality: "high", Price: 80_000_000}}}

func TestCostSumsAndRoundsOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		usage Usage
		sheet Sheet
		want  int64
	}{
		{"nothing", Usage{}, textSheet, 0},
		{"input and output", Usage{Input: 1000, Output: 100}, textSheet, 1_000_000 + 500_000},
		{"cache kinds", Usage{Input: 10, CachedInput: 1000, CacheWrite5m: 100, CacheWrite1h: 100}, textSheet, 10_000 + 100_000 + 125_000 + 100_000},
		{"audio has its own rate", Usage{Input: 100, AudioIn: 40}, textSheet, 60_000 + 400_000},
		{"more audio than input", Usage{Input: 10, AudioIn: 40}, textSheet, 100_000},
		{"reasoning without a rate is output", Usage{Output: 50, Reasoning: 40}, textSheet, 250_000},
		{"at the tier's edge", Usage{Input: 200_000}, textSheet, 200_000_000},
		{"over the edge by cached input", Usage{Input: 200_000, CachedInput: 1, Output: 2}, textSheet, 400_000_000 + 100 + 15_000},
		{"rounds half up", Usage{Input: 1}, Sheet{Rates: Rates{Input: 500_000}}, 1},
		{"rounds down", Usage{Input: 1}, Sheet{Rates: Rates{Input: 499_999}}, 0},
		{"rounds once", Usage{Input: 1, Output: 1}, Sheet{Rates: Rates{Input: 499_999, Output: 1}}, 1},
		{"image default", Usage{Images: 2, Size: "512x512"}, imageSheet, 80_000_000},
		{"image by size", Usage{Images: 2, Size: "1024x1024", Quality: "low"}, imageSheet, 60_000_000},
		{"image by quality", Usage{Images: 1, Size: "1x1", Quality: "high"}, imageSheet, 80_000_000},
		{"image by both, tokens are not billed", Usage{Images: 1, Size: "1024x1024", Quality: "high", Input: 9, Output: 300}, imageSheet, 90_000_000},
		{"seconds", Usage{Seconds: 8}, Sheet{Seconds: []UnitPrice{{Price: 100_000_000}}}, 800_000_000},
		{"discount", Usage{Input: 1000, Output: 100}, *textSheet.WithMultiplier(850_000), 1_275_000},
		{"markup", Usage{Seconds: 8}, *(&Sheet{Seconds: []UnitPrice{{Price: 100_000_000}}}).WithMultiplier(1_250_000), 1_000_000_000},
		{"multiplies before it rounds", Usage{Input: 1}, *(&Sheet{Rates: Rates{Input: 499_999}}).WithMultiplier(2_000_000), 1},
		{"rounds half up under a multiplier", Usage{Input: 1}, *(&Sheet{Rates: Rates{Input: 1_000_000}}).WithMultiplier(500_000), 1},
		{"rounds down under a multiplier", Usage{Input: 1}, *(&Sheet{Rates: Rates{Input: 1_000_000}}).WithMultiplier(499_999), 0},
		{"images are part of output tokens", Usage{Images: 1, Output: 10}, textSheet, 50_000},
	}
	for _, tt := range tests {
		got, err := Cost(&tt.usage, &tt.sheet)
		if err != nil || int64(got) != tt.want {
			t.Errorf("%s: got %d, %v; want %d", tt.name, got, err, tt.want)
		}
	}
}

func TestCostRejectsUnpricedAndInvalidQuantities(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		usage Usage
		sheet Sheet
		want  error
	}{
		{"no price for tokens", Usage{Input: 1}, imageSheet, ErrUnpriced},
		{"no price for seconds", Usage{Seconds: 1}, textSheet, ErrUnpriced},
		{"negative", Usage{Input: -1}, textSheet, ErrRange},
		{"too much", Usage{Input: math.MaxInt64}, Sheet{Rates: Rates{Input: math.MaxInt64}}, ErrRange},
		{"too much under a multiplier", Usage{Input: math.MaxInt64}, *(&Sheet{Rates: Rates{Input: 1_000_000}}).WithMultiplier(2_000_000), ErrRange},
		{"far too much under a multiplier", Usage{Seconds: math.MaxInt64}, *(&Sheet{Seconds: []UnitPrice{{Price: 1 << 40}}}).WithMultiplier(MaxMultiplier), ErrRange},
		{"negative multiplier", Usage{Input: 1}, Sheet{Rates: Rates{Input: 1}, Multiplier: -1}, ErrRange},
		{"too much by unit", Usage{Seconds: math.MaxInt64}, Sheet{Seconds: []UnitPrice{{Price: math.MaxInt64}}}, ErrRange},
	}
	for _, tt := range tests {
		if got, err := Cost(&tt.usage, &tt.sheet); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %d, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestReceiptLinesAddUpToTheCost(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		u := Usage{
			Input: r.Int64N(500_000), CachedInput: r.Int64N(100_000), CacheWrite1h: r.Int64N(9), Output: r.Int64N(100_000),
			AudioIn: r.Int64N(100), Reasoning: r.Int64N(50), ServerToolRequests: r.Int64N(3),
		}
		sheet := textSheet
		sheet.ServerTool = r.Int64N(1_000_000)
		sheet.Rates = Rates{Input: r.Int64N(1e10), Output: r.Int64N(1e11), Reasoning: r.Int64N(1e11)}
		items, cost, err := Receipt(&u, &sheet)
		if err != nil {
			t.Fatal(err)
		}
		sum := new(big.Rat)
		for _, i := range items {
			amount, ok := new(big.Rat).SetString(i.Amount())
			if !ok {
				t.Fatalf("amount %q", i.Amount())
			}
			sum.Add(sum, amount)
		}
		// |sum - cost| <= half a nano-unit
		diff := new(big.Rat).Sub(sum, big.NewRat(int64(cost), 1_000_000_000))
		if diff.Abs(diff).Cmp(big.NewRat(1, 2_000_000_000)) > 0 {
			t.Fatalf("lines of %+v sum to %s, cost is %s", u, sum.FloatString(15), cost)
		}
		if again, err := Cost(&u, &sheet); err != nil || again != cost {
			t.Fatalf("Cost = %d, %v; Receipt says %d", again, err, cost)
		}
	}
}

func TestItemAmountIsExact(t *testing.T) {
	t.Parallel()
	for want, item := range map[string]Item{
		"0.001":             {Input, 1000, 1_000_000_000, 1_000_000},
		"0.000000000000001": {Input, 1, 1, 1_000_000},
		"0.80":              {Seconds, 8, 100_000_000, 1},
	} {
		if got := item.Amount(); got != want {
			t.Errorf("%+v: got %s; want %s", item, got, want)
		}
	}
}

func TestValidateRejectsInvalidSheets(t *testing.T) {
	t.Parallel()
	for _, s := range []Sheet{textSheet, imageSheet} {
		if err := s.Validate(); err != nil {
			t.Errorf("version %d: %v", s.Version, err)
		}
	}
	for name, s := range map[string]Sheet{
		"empty":         {},
		"unknown line":  {Rates: Rates{"inputs": 1}},
		"negative rate": {Rates: Rates{Input: -1}},
		"tiers fall":    {Rates: Rates{Input: 1}, Tiers: []Tier{{AboveInput: 5}, {AboveInput: 5}}},
		"multiplier":    {Rates: Rates{Input: 1}, Multiplier: 1},
		"negative unit": {Images: []UnitPrice{{Price: -1}}},
	} {
		if s.Validate() == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func BenchmarkCost(b *testing.B) {
	u := Usage{Input: 1000, CachedInput: 500, Output: 200, Reasoning: 100}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Cost(&u, &textSheet); err != nil {
			b.Fatal(err)
		}
	}
}

// A price must not depend on how the client, the provider or the operator writes a size.
func TestUnitPricesApplyToEverySpelling(t *testing.T) {
	t.Parallel()
	sheet := Sheet{Images: []UnitPrice{{Price: 1}, {Size: "1024X1024", Price: 2}, {Size: "1024x1024", Quality: "high", Price: 3}}}
	for _, tt := range []struct {
		size, quality string
		want          money.Nano
	}{
		{"1024x1024", "low", 2},
		{"1024X1024", "", 2},
		{"1024*1024", "", 2},
		{" 1024 × 1024 ", "", 2},
		{"1024x1024", "HIGH", 3},
		{"1024X1024", " high", 3},
		{"512x512", "high", 1},
	} {
		got, err := Cost(&Usage{Images: 1, Size: tt.size, Quality: tt.quality}, &sheet)
		if err != nil || got != tt.want {
			t.Errorf("%q, %q: got %d, %v; want %d", tt.size, tt.quality, got, err, tt.want)
		}
	}
}
