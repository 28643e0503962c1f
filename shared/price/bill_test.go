package price

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"reflect"
	"testing"

	"modelgateway/shared/money"
)

// randomUsage sets every count of a usage, or leaves it zero. Half of the usages report more parts than there are tokens.
func randomUsage(r *rand.Rand) *Usage {
	u := &Usage{Size: []string{"", "small"}[r.IntN(2)], ServiceTier: []string{"", DefaultTier, "priority", "flex"}[r.IntN(4)]}
	most := []int64{50, 1_000, 300_000}[r.IntN(3)]
	fill := func(v reflect.Value) {
		for _, field := range v.Fields() {
			if field.Kind() == reflect.Int64 && r.IntN(3) > 0 {
				field.SetInt(r.Int64N(most))
			}
		}
	}
	fill(reflect.ValueOf(u).Elem())
	if r.IntN(2) == 0 {
		u.Input += u.AudioIn + u.ImageIn
		u.Output += u.Reasoning + u.AudioOut + u.ImageOut
	}
	if r.IntN(2) == 0 {
		u.Secondary = Secondary{Kind: []string{ImageTool, SVG, Advisor}[r.IntN(3)]}
		fill(reflect.ValueOf(&u.Secondary).Elem())
	}
	return u
}

// randomSheet has prices for everything, but perhaps only those of plain input and output for tokens.
func randomSheet(r *rand.Rand) *Sheet {
	rates := func(always bool) Rates {
		rates := Rates{}
		for line := range fallbackLines {
			if r.IntN(3) == 0 {
				rates[line] = r.Int64N(1e11)
			}
		}
		for _, line := range []Line{Input, Output} {
			if always || r.IntN(2) == 0 {
				rates[line] = r.Int64N(1e11)
			}
		}
		return rates
	}
	s := &Sheet{
		Version:    1,
		Rates:      rates(true),
		Tiers:      []Tier{{AboveInput: 700, Rates: rates(false)}, {AboveInput: 200_000, Rates: rates(false)}},
		Seconds:    []UnitPrice{{Price: r.Int64N(1e9)}},
		ServerTool: r.Int64N(1e8),
		Multiplier: Multiplier(r.Int64N(3 * int64(One))),
	}
	if r.IntN(2) == 0 {
		s.Images = []UnitPrice{{Price: r.Int64N(1e9)}, {Size: "small", Price: r.Int64N(1e9)}}
	}
	for _, name := range []string{"flex", "priority"} {
		own := rates(true)
		for line := range s.Rates {
			own[line] = r.Int64N(1e11)
		}
		s.ServiceTiers = append(s.ServiceTiers, ServiceTier{
			Name:  name,
			Rates: own,
			Tiers: []Tier{{AboveInput: 700, Rates: rates(false)}, {AboveInput: 200_000, Rates: rates(false)}},
		})
	}
	for _, kind := range []string{ImageTool, SVG, Advisor} {
		s.Secondary = append(s.Secondary, SecondaryPrice{Kind: kind, Rates: rates(true), Images: s.Images})
	}
	return s
}

// A bill is the sum over the kinds of usage, and every token, image, second and call is on one line of it.
func TestBillIsTheSumOverTheKindsOfUsage(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		u, s := randomUsage(r), randomSheet(r)
		items, cost, err := Receipt(u, s)
		if err != nil {
			t.Fatalf("%+v at %+v: %v", u, s, err)
		}
		again, err := Cost(u, s)
		if err != nil || again != cost {
			t.Fatalf("Cost = %d, %v; Receipt says %d", again, err, cost)
		}

		sum, billed := new(big.Rat), map[int64]int64{}
		for _, i := range items {
			sum.Add(sum, new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(i.Quantity), big.NewInt(i.Rate)), big.NewInt(i.Per)))
			billed[i.Per] += i.Quantity
		}
		sum.Mul(sum, big.NewRat(int64(s.Multiplier.Or(One)), int64(One)))
		if want := roundHalfUp(sum); money.Nano(want) != cost {
			t.Fatalf("%+v at %+v: got %d; want %d", u, s, cost, want)
		}
		checkQuantities(t, u, s, billed)
	}
}

func roundHalfUp(r *big.Rat) int64 {
	twice := new(big.Int).Add(new(big.Int).Mul(r.Num(), big.NewInt(2)), r.Denom())
	return new(big.Int).Div(twice, new(big.Int).Mul(r.Denom(), big.NewInt(2))).Int64()
}

// checkQuantities compares the billed quantities, by the divisor of their rates, with the usage.
func checkQuantities(t *testing.T, u *Usage, s *Sheet, billed map[int64]int64) {
	t.Helper()
	second := &u.Secondary
	tokens := u.TotalInput() + u.Output + second.Input + second.CachedInput + second.CacheWrite5m + second.CacheWrite1h + second.Output
	units := u.Seconds + u.ServerToolRequests
	if len(s.Images) > 0 { // otherwise they are part of the output tokens
		units += u.Images + second.Images
	}
	if billed[perMillion] != tokens || billed[1] != units {
		t.Fatalf("%+v: %d tokens and %d others are billed; want %d and %d", u, billed[perMillion], billed[1], tokens, units)
	}
}

// Nothing is free by omission: a kind of usage that is counted by itself has a price, or there is no bill.
func TestUsageOfAnyKindIsNotFreeByOmission(t *testing.T) {
	t.Parallel()
	kinds := reflect.TypeFor[Usage]()
	for i := range kinds.NumField() {
		field := kinds.Field(i)
		if field.Type.Kind() != reflect.Int64 {
			continue
		}
		u := &Usage{}
		reflect.ValueOf(u).Elem().Field(i).SetInt(1)
		switch field.Name {
		case "Reasoning", "AudioOut", "ImageOut":
			u.Output = 1
		case "AudioIn", "ImageIn":
			u.Input = 1
		case "ServerToolRequests":
			continue // see HasServerToolPrice
		}
		if cost, err := Cost(u, &Sheet{}); !errors.Is(err, ErrUnpriced) {
			t.Errorf("%s without a price: got %d, %v; want %v", field.Name, cost, err, ErrUnpriced)
		}
	}
}
