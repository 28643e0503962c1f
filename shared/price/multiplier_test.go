package price

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestParseMultiplierIsTheInverseOfString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Multiplier{
		"1": One, "0.85": 850_000, "0.000001": 1, "100": MaxMultiplier, "1.20": 1_200_000, "007.5": 7_500_000,
	} {
		m, err := ParseMultiplier(text)
		if err != nil || m != want {
			t.Errorf("%q: got %d, %v; want %d", text, m, err, want)
		}
		if again, err := ParseMultiplier(m.String()); err != nil || again != m {
			t.Errorf("%s parsed back: got %d, %v; want %d", m, again, err, m)
		}
	}
	for _, text := range []string{"", "0", "0.0", "-1", "+1", "1e1", "1_0", "0.0000001", "100.000001", "1000", ".5", "1.", "1.2.3", " 1"} {
		if m, err := ParseMultiplier(text); err == nil {
			t.Errorf("%q: got %d; want an error", text, m)
		}
	}
	if got := Multiplier(0).String(); got != "1" {
		t.Errorf("zero: got %s; want 1", got)
	}
}

func TestCostWithMultiplierIsRoundedOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		u := Usage{Input: r.Int64N(1_000_000), Output: r.Int64N(100_000), Seconds: r.Int64N(3)}
		list := Sheet{Rates: Rates{Input: r.Int64N(1e10), Output: r.Int64N(1e11)}, Seconds: []UnitPrice{{Price: r.Int64N(1e9)}}}
		m := Multiplier(1 + r.Int64N(int64(MaxMultiplier)))
		items, cost, err := Receipt(&u, list.WithMultiplier(m))
		if err != nil {
			t.Fatal(err)
		}
		exact := new(big.Rat)
		for _, i := range items {
			exact.Add(exact, new(big.Rat).Mul(big.NewRat(i.Quantity, i.Per), big.NewRat(i.Rate, 1)))
		}
		exact.Mul(exact, big.NewRat(int64(m), int64(One))).Add(exact, big.NewRat(1, 2))
		want := new(big.Int).Quo(exact.Num(), exact.Denom())
		if want.Int64() != int64(cost) {
			t.Fatalf("%+v under %s: got %d; want %s", u, m, cost, want)
		}
	}
}

func TestWithMultiplierKeepsTheSheetOfTheCatalog(t *testing.T) {
	t.Parallel()
	list := &Sheet{Version: 7, Rates: Rates{Input: 1}}
	if list.WithMultiplier(0) != list || list.WithMultiplier(One) != list {
		t.Error("multiplier One returns a new sheet")
	}
	own := list.WithMultiplier(850_000)
	if own.Multiplier != 850_000 || own.Version != 7 || list.Multiplier != 0 {
		t.Errorf("got %+v of %+v", own, list)
	}
	if own.WithMultiplier(0).Multiplier != 0 {
		t.Error("a multiplier cannot be removed")
	}
	for rate, want := range map[int64]string{1_000_000_000: "0.85", 1: "0.00000000085", 0: "0.00"} {
		if got := own.Multiplier.FormatRate(rate); got != want {
			t.Errorf("%d: got %s; want %s", rate, got, want)
		}
	}
}
