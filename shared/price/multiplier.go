package price

import (
	"fmt"
	"strconv"
	"strings"
)

// Multiplier is what an account pays of the list price, in parts per million:
// 850000 is a discount of 15 %, 1200000 a markup of 20 %. Zero means One, so
// that records written before there were multipliers mean what they meant.
type Multiplier int64

const (
	// One is the list price itself.
	One Multiplier = 1_000_000
	// MaxMultiplier bounds markups: one hundred times the list price.
	MaxMultiplier = 100 * One

	// multiplierPlaces is how many decimal places a multiplier has.
	multiplierPlaces = 6
)

// Or is the multiplier, or another one where it is zero.
func (m Multiplier) Or(other Multiplier) Multiplier {
	if m == 0 {
		return other
	}
	return m
}

// Validate reports a multiplier out of bounds.
func (m Multiplier) Validate() error {
	if m < 0 || m > MaxMultiplier {
		return fmt.Errorf("price: multiplier %d is not between 0.000001 and %s", int64(m), MaxMultiplier)
	}
	return nil
}

// ParseMultiplier reads a decimal such as "0.85", above zero and at most
// MaxMultiplier, with at most six places: a finer one is an error, never
// rounded.
func ParseMultiplier(text string) (Multiplier, error) {
	whole, fraction, dotted := strings.Cut(text, ".")
	fault := fmt.Errorf("price: %q is not a decimal above 0 and at most %s with at most %d places", text, MaxMultiplier, multiplierPlaces)
	if whole == "" || len(whole) > 3 || len(fraction) > multiplierPlaces || (dotted && fraction == "") {
		return 0, fault
	}
	n, err := strconv.ParseUint(whole+fraction+strings.Repeat("0", multiplierPlaces-len(fraction)), 10, 63)
	if m := Multiplier(n); err == nil && m > 0 && m <= MaxMultiplier {
		return m, nil
	}
	return 0, fault
}

// String prints the multiplier as a decimal, such as "0.85" or "1".
// ParseMultiplier reads it back.
func (m Multiplier) String() string {
	m = m.Or(One)
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%06d", m/One, m%One), "0"), ".")
}

// Of is a rate under the multiplier, exact, as a decimal in units of the
// currency with up to 15 places: what an account is shown as its own price.
func (m Multiplier) Of(rate int64) string {
	return Item{Quantity: int64(m.Or(One)), Rate: rate, Per: perMillion}.Amount()
}

// For returns the sheet for what is priced under a multiplier. The sheet
// itself stays as it is: it belongs to all accounts.
func (s *Sheet) For(m Multiplier) *Sheet {
	if m.Or(One) == s.Multiplier.Or(One) {
		return s
	}
	own := *s
	own.Multiplier = m
	return &own
}
