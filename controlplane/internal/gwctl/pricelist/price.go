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
	// read are the members that were understood.
	read map[string]bool
}

// rates pairs members of an entry, per token, with prices per million tokens.
func rates(anthropic bool) []struct {
	member string
	rate   func(*catalog.RateEntry) **catalog.Amount
} {
	// Anthropic's plain cache is the one of five minutes. Others do not say how long theirs lasts.
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

// million is how many tokens a price of the catalog is for.
var million = big.NewRat(1_000_000, 1)

// one is for prices of one picture or one second.
var one = big.NewRat(1, 1)

// price reads the prices. Without those that a model of its kind needs, the
// entry is left out.
func (m *member) price() (catalog.PriceEntry, bool) {
	m.read = map[string]bool{}
	var e catalog.PriceEntry
	if !m.rates(&e.RateEntry, "") || !m.tiers(&e) {
		return e, false
	}
	switch m.kind {
	case catalogkv.Image:
		return e, m.unit(&e.Images, "one picture", "output_cost_per_image", "input_cost_per_image")
	case catalogkv.Video:
		return e, m.unit(&e.Seconds, "one second", "output_cost_per_video_per_second", "output_cost_per_second")
	case catalogkv.Text:
		if e.Input == nil || e.Output == nil {
			m.reader.omit(m.name, "", "it lacks input_cost_per_token or output_cost_per_token")
			return e, false
		}
	}
	return e, true
}

// rates reads the prices per token whose names end alike. A price that cannot
// be held is a reason to leave the entry out: without it, another would be
// charged.
func (m *member) rates(e *catalog.RateEntry, suffix string) bool {
	for _, each := range rates(m.anthropic) {
		amount, ok := m.amount(each.member+suffix, million)
		if !ok {
			return false
		}
		if amount != nil {
			*each.rate(e) = amount
		}
	}
	return true
}

// tierName is a price that holds above a length of the input.
var tierName = regexp.MustCompile(`_above_([0-9]{1,6})k_tokens$`)

// tiers reads the prices for long inputs, the shortest first.
func (m *member) tiers(e *catalog.PriceEntry) bool {
	found := map[int64]string{}
	for name := range m.of {
		if match := tierName.FindStringSubmatch(name); match != nil {
			thousands, err := strconv.ParseInt(match[1], 10, 64)
			if err != nil { // at most six digits
				panic(err)
			}
			found[thousands*1000] = match[0]
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

// unit reads the price of one picture or second, from the first member that
// there is.
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

// amount reads a price, nil where there is none. It is false for one that the
// catalog cannot hold exactly.
func (m *member) amount(name string, per *big.Rat) (*catalog.Amount, bool) {
	m.read[name] = true
	value, present := m.of[name]
	if !present || value == nil {
		return nil, true
	}
	number, isNumber := value.(json.Number)
	if !isNumber {
		m.reader.omit(m.name, name, "is no number")
		return nil, false
	}
	amount, err := exact(number.String(), per, m.reader.options.Markup)
	if err != nil {
		m.reader.omit(m.name, name, "%s: %v", number, err)
		return nil, false
	}
	return &amount, true
}

// decimal is a number of JSON whose exponent is one that a price can have.
var decimal = regexp.MustCompile(`^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?$`)

// exact is a price for so many units, with the markup, to the last digit.
func exact(text string, per, markup *big.Rat) (catalog.Amount, error) {
	value, ok := new(big.Rat).SetString(text)
	if !decimal.MatchString(text) || !ok {
		return 0, errors.New("is no price")
	}
	if value.Sign() < 0 {
		return 0, errors.New("is negative")
	}
	value.Mul(value, per)
	if markup != nil {
		value.Mul(value, markup)
	}
	const nano = 1_000_000_000
	value.Mul(value, big.NewRat(nano, 1))
	if !value.IsInt() {
		return 0, errors.New("has more digits than the catalog can hold")
	}
	if !value.Num().IsInt64() {
		return 0, errors.New("is too great")
	}
	return catalog.Amount(value.Num().Int64()), nil
}

// limit reads a number of tokens; zero where there is none.
func (m *member) limit(name string) int64 {
	value, present := m.of[name]
	if !present || value == nil {
		return 0
	}
	number, _ := value.(json.Number)
	n, ok := new(big.Rat).SetString(number.String())
	if !ok || !decimal.MatchString(number.String()) || !n.IsInt() || n.Sign() <= 0 || !n.Num().IsInt64() {
		m.reader.omit(m.name, name, "is no number of tokens")
		return 0
	}
	return n.Num().Int64()
}

// rest tells of every other price, each with what becomes of it.
func (m *member) rest() {
	for _, name := range slices.Sorted(maps.Keys(m.of)) {
		if m.read[name] || !strings.Contains(name, "cost") || m.of[name] == nil {
			continue
		}
		reason := "the gateway does not know this price"
		for _, known := range otherPrices {
			if strings.Contains(name, known.part) {
				reason = known.reason
				break
			}
		}
		m.reader.omit(m.name, name, "%s", reason)
	}
}

// otherPrices are prices that mean nothing for the gateway, by a part of their
// names.
var otherPrices = []struct{ part, reason string }{
	{"_batches", "the gateway has no batches"},
	{"_priority", "requests run in the default tier"},
	{"_flex", "requests run in the default tier"},
	{"search_context", "tools that the provider runs are refused unless the catalog prices them"},
	{"_pixel", "pictures are priced by size and quality"},
}
