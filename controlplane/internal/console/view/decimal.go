package view

import (
	"math/big"
	"strings"
)

// places is the number of places at which a sum or product of decimals is exact: nine of an amount and nine of a multiplier.
const places = 18

// Add returns the exact sum of decimals; "" if one is not a decimal.
func Add(decimals ...string) string {
	sum := new(big.Rat)
	for _, d := range decimals {
		v, ok := new(big.Rat).SetString(d)
		if !ok {
			return ""
		}
		sum.Add(sum, v)
	}
	return decimal(sum)
}

// Sub returns the exact difference of two decimals; "" if one is not a decimal.
func Sub(a, b string) string {
	negated := "-" + b
	if rest, ok := strings.CutPrefix(b, "-"); ok {
		negated = rest
	}
	return Add(a, negated)
}

// Mul returns the exact product of two decimals with at most nine places; "" if one is not a decimal.
func Mul(a, b string) string {
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	if !okX || !okY {
		return ""
	}
	return decimal(x.Mul(x, y))
}

// Compare returns -1, 0 or 1 if a is less than, equal to or greater than b, which are decimals.
func Compare(a, b string) int {
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	if !okX || !okY {
		return 0
	}
	return x.Cmp(y)
}

// decimal writes a value with at least two places, as the API does, and no further zeros.
func decimal(v *big.Rat) string {
	text := v.FloatString(places)
	whole, fraction, _ := strings.Cut(text, ".")
	fraction = strings.TrimRight(fraction, "0")
	for len(fraction) < 2 {
		fraction += "0"
	}
	return whole + "." + fraction
}

// Columns returns the heights of the columns of a chart in thousandths of the highest, from decimals. A column whose value
// is above zero is at least 15 high, so that it can be seen.
func Columns(decimals []string) []int {
	highest := new(big.Rat)
	values := make([]*big.Rat, len(decimals))
	for i, d := range decimals {
		v, ok := new(big.Rat).SetString(d)
		if !ok {
			v = new(big.Rat)
		}
		values[i] = v
		if v.Cmp(highest) > 0 {
			highest = v
		}
	}

	heights := make([]int, len(decimals))
	for i, v := range values {
		if v.Sign() > 0 {
			share, _ := new(big.Rat).Quo(v, highest).Float64()
			heights[i] = max(int(share*1000+0.5), 15)
		}
	}

	return heights
}

// Share returns how many percent of a whole a part is, rounded; -1 if the whole is not above zero.
func Share(part, whole string) int {
	p, okP := new(big.Rat).SetString(part)
	w, okW := new(big.Rat).SetString(whole)
	if !okP || !okW || w.Sign() <= 0 {
		return -1
	}
	share, _ := p.Quo(p, w).Float64()
	return int(share*100 + 0.5)
}
