package price

import (
	"fmt"
	"strconv"
	"strings"
)

// Multiplier is an account's factor on list prices, in parts per million:
// 850000 is a discount of 15 %, 1200000 a markup of 20 %. Zero means One.
type Multiplier int64

const (
	// One leaves the list price unchanged.
	One Multiplier = 1_000_000
	// MaxMultiplier is the maximum: one hundred times the list price.
	MaxMultiplier = 100 * One

	// multiplierPlaces is the number of decimal places of a multiplier.
	multiplierPlaces = 6
)

// Or returns the multiplier, or other if it is zero.
func (m Multiplier) Or(other Multiplier) Multiplier {
	if m == 0 {
		return other
	}
	return m
}

// Validate returns an error if the multiplier is out of range.
func (m Multiplier) Validate() error {
	if m < 0 || m > MaxMultiplier {
		return fmt.Errorf("price: multiplier %d is not between 0.000001 and %s", int64(m), MaxMultiplier)
	}
	return nil
}

// ParseMultiplier parses a decimal such as "0.85", above zero and at most
// MaxMultiplier. More than six places are an error; nothing is rounded.
func ParseMultiplier(text string) (Multiplier, error) {
	whole, fraction, dotted := strings.Cut(text, ".")
	invalid := fmt.Errorf("price: %q is not a decimal above 0 and at most %s with at most %d places", text, MaxMultiplier, multiplierPlaces)
	if whole == "" || len(whole) > 3 || len(fraction) > multiplierPlaces || (dotted && fraction == "") {
		return 0, invalid
	}
	n, err := strconv.ParseUint(whole+fraction+strings.Repeat("0", multiplierPlaces-len(fraction)), 10, 63)
	if m := Multiplier(n); err == nil && m > 0 && m <= MaxMultiplier {
		return m, nil
	}
	return 0, invalid
}

// String formats the multiplier as a decimal, such as "0.85" or "1".
// ParseMultiplier is its inverse.
func (m Multiplier) String() string {
	m = m.Or(One)
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%06d", m/One, m%One), "0"), ".")
}

// FormatRate returns a rate times the multiplier, exactly, as a decimal in units
// of the currency with up to 15 places.
func (m Multiplier) FormatRate(rate int64) string {
	return Item{Quantity: int64(m.Or(One)), Rate: rate, Per: perMillion}.Amount()
}

// WithMultiplier returns the sheet with a multiplier. It does not change s,
// because all accounts share it.
func (s *Sheet) WithMultiplier(m Multiplier) *Sheet {
	if m.Or(One) == s.Multiplier.Or(One) {
		return s
	}
	own := *s
	own.Multiplier = m
	return &own
}
