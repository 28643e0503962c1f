package e2e

import (
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/providersim"
)

// prices are prices per million tokens, as in the Price of a model.
type prices map[string]string

// bill computes the cost of counts at the prices, independently of the product.
func (p prices) bill(t *testing.T, c providersim.Counts) *big.Rat {
	t.Helper()
	total := new(big.Rat)
	for line, quantity := range map[string]int64{
		"input": c.Input, "cached_input": c.CachedInput, "cache_write_5m": c.CacheWrite5m, "cache_write_30m": c.CacheWrite30m, "output": c.Output,
	} {
		if quantity != 0 {
			total.Add(total, amount(t, quantity, p[line], 1_000_000))
		}
	}
	return total
}

// document returns the prices in the form of the catalog.
func (p prices) document() map[string]any {
	document := map[string]any{}
	for line, price := range p {
		document[line] = price
	}
	return document
}

// amount returns quantity × price / per.
func amount(t *testing.T, quantity int64, price string, per int64) *big.Rat {
	t.Helper()
	return new(big.Rat).Mul(rat(t, price), big.NewRat(quantity, per))
}

// rat parses a decimal.
func rat(t *testing.T, decimal string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(decimal)
	if !ok {
		t.Fatalf("%q is not a decimal", decimal)
	}
	return r
}

// nano rounds half up to a nano-unit, as charges are rounded.
func nano(r *big.Rat) *big.Rat {
	scaled := new(big.Rat).Mul(r, big.NewRat(1_000_000_000, 1))
	scaled.Add(scaled, big.NewRat(1, 2))
	whole := new(big.Int).Div(scaled.Num(), scaled.Denom())
	return new(big.Rat).SetFrac(whole, big.NewInt(1_000_000_000))
}

// checkReceipt checks that a receipt has the lines of the prices, that each amount is right,
// and that the sum is the charge.
func checkReceipt(t *testing.T, usage *adminclient.UsageDetail, list prices, counts providersim.Counts) {
	t.Helper()
	want := map[string]int64{}
	for line, quantity := range map[string]int64{
		"input": counts.Input, "cached_input": counts.CachedInput, "cache_write_5m": counts.CacheWrite5m,
		"cache_write_30m": counts.CacheWrite30m, "output": counts.Output,
	} {
		if quantity != 0 {
			want[line] = quantity
		}
	}
	got, sum := map[string]int64{}, new(big.Rat)
	for _, line := range usage.Receipt.Lines {
		got[line.Line] = line.Quantity
		if rat(t, line.UnitPrice).Cmp(rat(t, list[line.Line])) != 0 {
			t.Errorf("%s: a unit costs %s; want %s", line.Line, line.UnitPrice, list[line.Line])
		}
		exact := amount(t, line.Quantity, line.UnitPrice, line.Per)
		if rat(t, line.Amount).Cmp(exact) != 0 {
			t.Errorf("%s: got the amount %s; want %s", line.Line, line.Amount, exact.FloatString(15))
		}
		sum.Add(sum, exact)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("quantities (-reported +billed):\n%s", diff)
	}
	for what, charged := range map[string]string{"the receipt's cost": usage.Receipt.Cost, "the cost": usage.Cost} {
		if rat(t, charged).Cmp(nano(sum)) != 0 {
			t.Errorf("%s is %s; want %s, the sum of the lines", what, charged, nano(sum).FloatString(9))
		}
	}
	if sum.Cmp(list.bill(t, counts)) != 0 {
		t.Errorf("the lines add up to %s; want %s", sum.FloatString(15), list.bill(t, counts).FloatString(15))
	}
}

// countsOf returns counts of input and output tokens.
func countsOf(input, output int64) providersim.Counts {
	return providersim.Counts{Input: input, Output: output}
}
