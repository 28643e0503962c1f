package price

import (
	"errors"
	"fmt"
	"math/big"
	"math/bits"

	"modelgateway/shared/money"
)

// ErrUnpriced means that the sheet has no price for a quantity.
var ErrUnpriced = errors.New("price: no price")

// ErrRange means that a quantity or rate is negative or the cost overflows an int64.
var ErrRange = errors.New("price: out of range")

// perMillion is the number of tokens that the rate of a token line applies to.
const perMillion = 1_000_000

// Item is one line of a receipt: Quantity × Rate / Per. Its amount is not
// rounded to a nano-unit; only the sum of a receipt is.
type Item struct {
	Line     Line  `json:"line"`
	Quantity int64 `json:"quantity"`
	// Rate is in nano-units for each Per of the quantity.
	Rate int64 `json:"rate"`
	// Per is 1000000 for tokens, and 1 for images, seconds and calls.
	Per int64 `json:"per"`
}

// Amount returns the exact amount of the item in units of the currency, as a
// decimal with 2 to 15 places.
func (i Item) Amount() string {
	micro := new(big.Int).Mul(big.NewInt(i.Quantity), big.NewInt(i.Rate*(perMillion/i.Per)))
	text := new(big.Rat).SetFrac(micro, big.NewInt(int64(money.Unit)*perMillion)).FloatString(15)
	end := len(text)
	for end > len(text)-13 && text[end-1] == '0' { // keeps two places
		end--
	}
	return text[:end]
}

// Cost returns the cost of a usage: the sum of its receipt's lines times the
// sheet's multiplier, rounded once, half up, to a nano-unit. It returns
// ErrUnpriced for a quantity without a price, so that nothing is free by
// omission.
func Cost(u *Usage, s *Sheet) (money.Nano, error) {
	var sum total
	if err := s.forEachItem(u, sum.add); err != nil {
		return 0, err
	}
	return sum.round(s.Multiplier)
}

// Receipt returns the lines of a usage at list prices, in a fixed order, and
// their cost with the sheet's multiplier.
func Receipt(u *Usage, s *Sheet) ([]Item, money.Nano, error) {
	var items []Item
	var sum total
	err := s.forEachItem(u, func(i Item) error {
		items = append(items, i)
		return sum.add(i)
	})
	if err != nil {
		return nil, 0, err
	}
	cost, err := sum.round(s.Multiplier)
	return items, cost, err
}

// total is a sum in millionths of a nano-unit, in 128 bits.
type total struct{ hi, lo uint64 }

func (t *total) add(i Item) error {
	hi, lo := bits.Mul64(uint64(i.Quantity), uint64(i.Rate))
	if i.Per == 1 {
		over, scaled := bits.Mul64(lo, perMillion)
		more, top := bits.Mul64(hi, perMillion)
		sum, carry := bits.Add64(top, over, 0)
		if more != 0 || carry != 0 {
			return ErrRange
		}
		hi, lo = sum, scaled
	}

	var carry uint64
	t.lo, carry = bits.Add64(t.lo, lo, 0)
	t.hi, carry = bits.Add64(t.hi, hi, carry)
	if carry != 0 {
		return ErrRange
	}

	return nil
}

// round returns the sum times a multiplier, rounded. Rounding the list price
// before the multiplication would add a second error.
func (t *total) round(m Multiplier) (money.Nano, error) {
	m = m.Or(One)
	if m < 0 {
		return 0, ErrRange
	}

	over, middle := bits.Mul64(t.hi, uint64(m))
	carried, lo := bits.Mul64(t.lo, uint64(m))
	hi, carry := bits.Add64(middle, carried, 0)
	if over != 0 || carry != 0 {
		return 0, ErrRange
	}

	const divisor = perMillion * uint64(One)
	lo, carry = bits.Add64(lo, divisor/2, 0)
	hi, carry = bits.Add64(hi, 0, carry)
	if carry != 0 || hi >= divisor {
		return 0, ErrRange
	}

	quotient, _ := bits.Div64(hi, lo, divisor)
	if quotient > 1<<63-1 {
		return 0, ErrRange
	}

	return money.Nano(quotient), nil
}

// forEachItem calls add for every line with a quantity, in the order of receipts.
func (s *Sheet) forEachItem(u *Usage, add func(Item) error) error {
	tier, rates, err := s.ratesOf(u)
	if err != nil {
		return err
	}
	rate := func(l Line) (int64, bool) { return lookup(l, tier, rates) }
	// Audio, images and reasoning are part of input and output. Each is a line of
	// its own only if the sheet has a price for it.
	plainIn, plainOut := u.Input, u.Output

	split := func(l Line, n int64, rest *int64) int64 {
		if n == 0 {
			return 0
		}
		_, own := rates[l]
		if _, tiered := tier[l]; !own && !tiered {
			return 0
		}
		n = min(n, max(*rest, 0))
		*rest -= n
		return n
	}
	audioIn := split(AudioIn, u.AudioIn, &plainIn)
	imageIn := split(ImageIn, u.ImageIn, &plainIn)
	audioOut := split(AudioOut, u.AudioOut, &plainOut)
	imageOut := split(ImageOut, u.ImageOut, &plainOut)
	reasoning := split(Reasoning, u.Reasoning, &plainOut)
	for _, part := range [...]struct {
		line     Line
		quantity int64
	}{
		{Input, plainIn},
		{AudioIn, audioIn},
		{ImageIn, imageIn},
		{CachedInput, u.CachedInput},
		{CacheWrite5m, u.CacheWrite5m},
		{CacheWrite1h, u.CacheWrite1h},
		{CacheWrite30m, u.CacheWrite30m},
		{CacheWrite12h, u.CacheWrite12h},
		{CacheWriteOther, u.CacheWriteOther},
		{Output, plainOut},
		{Reasoning, reasoning},
		{AudioOut, audioOut},
		{ImageOut, imageOut},
	} {
		if part.quantity == 0 {
			continue
		}
		r, ok := rate(part.line)
		if !ok && s.pricesUnitsOnly(u) {
			continue // a sheet with prices per image or second only does not bill tokens
		}
		if err := addItem(add, Item{part.line, part.quantity, r, perMillion}, ok); err != nil {
			return err
		}
	}

	images, pricedImages := unitPrice(s.Images, u.Size, u.Quality)
	if !pricedImages && len(s.Rates) > 0 {
		u = withoutImages(u) // images in an answer that is priced by tokens are part of its output tokens
	}

	seconds, pricedSeconds := unitPrice(s.Seconds, u.Size, u.Quality)
	for _, part := range [...]struct {
		item   Item
		priced bool
	}{
		{Item{Images, u.Images, images, 1}, pricedImages},
		{Item{Seconds, u.Seconds, seconds, 1}, pricedSeconds},
		{Item{ServerTool, u.ServerToolRequests, s.ServerTool, 1}, true},
	} {
		if part.item.Quantity == 0 {
			continue
		}
		if err := addItem(add, part.item, part.priced); err != nil {
			return err
		}
	}

	return s.forEachSecondaryItem(&u.Secondary, add)
}

// PricesImagesByToken reports whether images of a size and quality cost what their tokens cost.
func (s *Sheet) PricesImagesByToken(size, quality string) bool {
	_, priced := unitPrice(s.Images, size, quality)
	return !priced && len(s.Rates) > 0
}

func (s *Sheet) pricesUnitsOnly(u *Usage) bool {
	return len(s.Rates) == 0 && ((u.Images > 0 && len(s.Images) > 0) || (u.Seconds > 0 && len(s.Seconds) > 0))
}

func withoutImages(u *Usage) *Usage {
	c := *u
	c.Images = 0
	return &c
}

func addItem(add func(Item) error, i Item, priced bool) error {
	switch {
	case !priced:
		return fmt.Errorf("%w for %s", ErrUnpriced, i.Line)
	case i.Quantity < 0 || i.Rate < 0:
		return fmt.Errorf("%w: %d × %d of %s", ErrRange, i.Quantity, i.Rate, i.Line)
	}
	return add(i)
}
