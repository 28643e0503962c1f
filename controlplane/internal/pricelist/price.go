package pricelist

import (
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/shared/catalogkv"
)

// member reads the members of one entry.
type member struct {
	reader    *reader
	name      string
	of        map[string]any
	kind      catalogkv.Type
	anthropic bool
	// read has the members that were converted.
	read map[string]bool
}

// rates maps members with prices per token to the rates of the catalog.
func rates(anthropic bool) []struct {
	member string
	rate   func(*catalog.RateEntry) **catalog.Amount
} {
	// Anthropic's default cache lasts five minutes. Other providers do not publish the lifetime.
	write := func(e *catalog.RateEntry) **catalog.Amount { return &e.CacheWriteOther }
	if anthropic {
		write = func(e *catalog.RateEntry) **catalog.Amount { return &e.CacheWrite5m }
	}

	return []struct {
		member string
		rate   func(*catalog.RateEntry) **catalog.Amount
	}{
		{"input_cost_per_token", func(e *catalog.RateEntry) **catalog.Amount { return &e.Input }},
		{"output_cost_per_token", func(e *catalog.RateEntry) **catalog.Amount { return &e.Output }},
		{"cache_read_input_token_cost", func(e *catalog.RateEntry) **catalog.Amount { return &e.CachedInput }},
		{"cache_creation_input_token_cost", write},
		{"cache_creation_input_token_cost_above_1hr", func(e *catalog.RateEntry) **catalog.Amount { return &e.CacheWrite1h }},
		{"output_cost_per_reasoning_token", func(e *catalog.RateEntry) **catalog.Amount { return &e.Reasoning }},
		{"input_cost_per_audio_token", func(e *catalog.RateEntry) **catalog.Amount { return &e.AudioIn }},
		{"output_cost_per_audio_token", func(e *catalog.RateEntry) **catalog.Amount { return &e.AudioOut }},
		{"input_cost_per_image_token", func(e *catalog.RateEntry) **catalog.Amount { return &e.ImageIn }},
		{"output_cost_per_image_token", func(e *catalog.RateEntry) **catalog.Amount { return &e.ImageOut }},
	}
}

// million is the number of tokens that a price of the catalog is for.
var million = big.NewRat(1_000_000, 1)

// one is the number of images or seconds that a price is for.
var one = big.NewRat(1, 1)

// price converts the prices. If a price is missing that the type of model requires, the entry is omitted.
func (m *member) price() (catalog.PriceEntry, bool) {
	m.read = map[string]bool{}
	var e catalog.PriceEntry
	if !m.rates(&e.RateEntry, "") || !m.tiers(&e) {
		return e, false
	}

	switch m.kind {
	case catalogkv.Image:
		return e, m.unit(&e.Images, "one image", "output_cost_per_image", "input_cost_per_image")
	case catalogkv.Video:
		return e, m.unit(&e.Seconds, "one second", "output_cost_per_video_per_second", "output_cost_per_second")
	case catalogkv.Text:
		if e.Input == nil || e.Output == nil {
			m.reader.omit(m.name, "", "it has no input_cost_per_token or output_cost_per_token")
			return e, false
		}
		m.serviceTiers(&e)
	}

	return e, true
}

// rates converts the prices per token whose names have one of some suffixes that mean the same. If a price cannot be represented,
// the entry is omitted: otherwise another price would be charged.
func (m *member) rates(e *catalog.RateEntry, suffixes ...string) bool {
	for _, each := range rates(m.anthropic) {
		rate := each.rate(e)
		for _, suffix := range suffixes {
			amount, ok := m.amount(each.member+suffix, million)
			if !ok {
				return false
			}
			if amount != nil && *rate != nil && **rate != *amount {
				m.reader.omit(m.name, each.member+suffix, "another member of the same meaning has another price")
				return false
			}
			if amount != nil {
				*rate = amount
			}
		}
	}
	return true
}

// tierName matches prices that apply above a length of the input.
var tierName = regexp.MustCompile(`_above_([0-9]{1,6})k_tokens$`)

// tiers converts the prices for long inputs, the shortest first.
func (m *member) tiers(e *catalog.PriceEntry) bool {
	found := map[int64]string{}
	for name := range m.of {
		if match := tierName.FindStringSubmatch(name); match != nil {
			found[thousands(match[1])] = match[0]
		}
	}

	for _, above := range slices.Sorted(maps.Keys(found)) {
		tier := catalog.TierEntry{AboveInput: above}
		if !m.rates(&tier.RateEntry, found[above]) {
			return false
		}
		if tier.RateEntry != (catalog.RateEntry{}) {
			e.Tiers = append(e.Tiers, tier)
		}
	}

	return true
}

// serviceTierNames are the service tiers whose prices lists have, in members with this end.
var serviceTierNames = []string{"priority", "flex"}

// serviceTiers converts the prices of service tiers. One that is incomplete is left out: requests for it are refused, which is
// better than a price for them that is too low.
func (m *member) serviceTiers(e *catalog.PriceEntry) {
	for _, name := range serviceTierNames {
		t := catalog.ServiceTierEntry{Name: name}
		if !m.serviceTier(&t) {
			m.skip("_" + name)
			continue
		}
		if t.RateEntry == (catalog.RateEntry{}) && t.Tiers == nil {
			continue
		}
		with := *e
		with.ServiceTiers = append(slices.Clip(e.ServiceTiers), t)
		if err := with.Check(catalogkv.Text); err != nil {
			m.reader.omit(m.name, "", "its prices of the service tier %s are incomplete: %v", name, err)
			continue
		}
		e.ServiceTiers = with.ServiceTiers
	}
}

// skip omits the members with a part in their names without a further reason.
func (m *member) skip(part string) {
	for name := range m.of {
		m.read[name] = m.read[name] || strings.Contains(name, part)
	}
}

// serviceTier converts the prices of a service tier, and those for long inputs in it, whose names have both ends in either order.
func (m *member) serviceTier(t *catalog.ServiceTierEntry) bool {
	end := "_" + t.Name
	found := map[int64]string{}
	for name := range m.of {
		whole, in := strings.CutSuffix(name, end)
		if match := tierName.FindStringSubmatch(whole); match != nil && (in || strings.HasSuffix(strings.TrimSuffix(name, match[0]), end)) {
			found[thousands(match[1])] = match[0]
		}
	}

	if !m.rates(&t.RateEntry, end) {
		return false
	}
	for _, above := range slices.Sorted(maps.Keys(found)) {
		long := catalog.TierEntry{AboveInput: above}
		if !m.rates(&long.RateEntry, found[above]+end, end+found[above]) {
			return false
		}
		if long.RateEntry != (catalog.RateEntry{}) {
			t.Tiers = append(t.Tiers, long)
		}
	}
	return true
}

// thousands returns the number of tokens for the digits of a tierName.
func thousands(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil { // at most six digits
		panic(err)
	}
	return n * 1000
}

// unit converts the price of one image or second from the first member that exists.
func (m *member) unit(into *[]catalog.UnitEntry, what string, names ...string) bool {
	for _, name := range names {
		amount, ok := m.amount(name, one)
		if !ok {
			return false
		}
		if amount != nil {
			*into = []catalog.UnitEntry{{Price: *amount}}
			return true
		}
	}
	m.reader.omit(m.name, "", "it has no price for %s (%s)", what, strings.Join(names, " or "))
	return false
}

// amount converts a price; nil if there is none. It returns false if the catalog cannot represent the price exactly.
func (m *member) amount(name string, per *big.Rat) (*catalog.Amount, bool) {
	m.read[name] = true
	value, present := m.of[name]
	if !present || value == nil {
		return nil, true
	}

	number, isNumber := value.(json.Number)
	if !isNumber {
		m.reader.omit(m.name, name, "not a number")
		return nil, false
	}

	amount, err := exact(number.String(), per, m.reader.options.Markup)
	if err != nil {
		m.reader.omit(m.name, name, "%s: %v", number, err)
		return nil, false
	}

	return &amount, true
}

// decimal matches JSON numbers with the digits and exponents of prices.
var decimal = regexp.MustCompile(`^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?$`)

// exact returns the exact price of a number of units, with the markup.
func exact(text string, per, markup *big.Rat) (catalog.Amount, error) {
	if !decimal.MatchString(text) { // an exponent of millions would take seconds to compute
		return 0, errors.New("not a price")
	}

	value, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, errors.New("not a price")
	}
	if value.Sign() < 0 {
		return 0, errors.New("negative")
	}

	value.Mul(value, per)
	if markup != nil {
		value.Mul(value, markup)
	}

	const nano = 1_000_000_000
	value.Mul(value, big.NewRat(nano, 1))
	if !value.IsInt() {
		return 0, errors.New("more digits than the catalog can represent")
	}
	if !value.Num().IsInt64() {
		return 0, errors.New("too large")
	}

	return catalog.Amount(value.Num().Int64()), nil
}

// limit returns a number of tokens; zero if there is none.
func (m *member) limit(name string) int64 {
	value, present := m.of[name]
	if !present || value == nil {
		return 0
	}
	number, _ := value.(json.Number)
	n, ok := new(big.Rat), decimal.MatchString(number.String())
	if ok {
		n, ok = n.SetString(number.String())
	}
	if !ok || !n.IsInt() || n.Sign() <= 0 || !n.Num().IsInt64() {
		m.reader.omit(m.name, name, "not a number of tokens")
		return 0
	}
	return n.Num().Int64()
}

// rest records an omission for every other price.
func (m *member) rest() {
	for _, name := range slices.Sorted(maps.Keys(m.of)) {
		if m.read[name] || !strings.Contains(name, "cost") || m.of[name] == nil {
			continue
		}
		reason := "the gateway has no such price"
		for _, known := range otherPrices {
			if strings.Contains(name, known.part) {
				reason = known.reason
				break
			}
		}
		m.reader.omit(m.name, name, "%s", reason)
	}
}

// otherPrices has the reasons for prices that the gateway does not use, by a part of their names.
var otherPrices = []struct{ part, reason string }{
	{"_batches", "the gateway has no batch API"},
	{"_priority", "no service tier of the gateway has such a price"},
	{"_flex", "no service tier of the gateway has such a price"},
	{"search_context", "the gateway refuses server tools that have no price in the catalog"},
	{"_pixel", "images are priced by size and quality"},
}
