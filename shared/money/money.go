// Package money represents amounts of money as an int64 count of nano-units
// (1e-9) of a currency, with parsing, formatting and checked addition.
//
// Amounts are multiplied in package price only, and never held in a float.
package money

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Nano is an amount in nano-units of a currency. Its JSON form is the integer;
// String formats it for people.
type Nano int64

// Unit is one whole unit of a currency.
const Unit Nano = 1_000_000_000

// digits is the number of decimal places of a Nano.
const digits = 9

// ErrOverflow is returned when a sum does not fit into an int64.
var ErrOverflow = errors.New("money: amount out of range")

// Add returns a + b, or ErrOverflow.
func Add(a, b Nano) (Nano, error) {
	if (b > 0 && a > math.MaxInt64-b) || (b < 0 && a < math.MinInt64-b) {
		return 0, ErrOverflow
	}
	return a + b, nil
}

// Sum returns the sum of all amounts, or ErrOverflow.
func Sum(amounts ...Nano) (Nano, error) {
	var total Nano
	var err error
	for _, a := range amounts {
		if total, err = Add(total, a); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// Parse parses a decimal such as "12.34" or "-0.000000001". More than nine
// decimal places are an error; nothing is rounded.
func Parse(s string) (Nano, error) {
	text, negative := strings.CutPrefix(s, "-")
	whole, fraction, dotted := strings.Cut(text, ".")
	if whole == "" || len(fraction) > digits || (dotted && fraction == "") {
		return 0, fmt.Errorf("money: %q is not a decimal with at most %d places", s, digits)
	}

	var n uint64
	for _, r := range whole + fraction + strings.Repeat("0", digits-len(fraction)) {
		if r < '0' || r > '9' {
			return 0, fmt.Errorf("money: %q is not a decimal with at most %d places", s, digits)
		}
		if n > math.MaxInt64/10 {
			return 0, fmt.Errorf("money: parse %q: %w", s, ErrOverflow)
		}
		n = n*10 + uint64(r-'0')
	}

	if n > math.MaxInt64 {
		return 0, fmt.Errorf("money: parse %q: %w", s, ErrOverflow)
	}
	if negative {
		return -Nano(n), nil
	}

	return Nano(n), nil
}

// String formats the amount as a decimal with two to nine places, such as
// "12.34", "5.00" or "0.000000001". Parse is its inverse.
func (n Nano) String() string {
	sign, u := "", uint64(n)
	if n < 0 {
		sign, u = "-", -u
	}
	fraction := strings.TrimRight(fmt.Sprintf("%09d", u%uint64(Unit)), "0")
	for len(fraction) < 2 {
		fraction += "0"
	}
	return fmt.Sprintf("%s%d.%s", sign, u/uint64(Unit), fraction)
}
