package catalog

import (
	"slices"

	"modelgateway/controlplane/internal/validation"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// lines returns the members of a RateEntry with the lines of a price sheet.
func (r *RateEntry) lines() []struct {
	line price.Line
	rate **Amount
} {
	return []struct {
		line price.Line
		rate **Amount
	}{
		{price.Input, &r.Input},
		{price.CachedInput, &r.CachedInput},
		{price.CacheWrite5m, &r.CacheWrite5m},
		{price.CacheWrite1h, &r.CacheWrite1h},
		{price.CacheWrite30m, &r.CacheWrite30m},
		{price.CacheWrite12h, &r.CacheWrite12h},
		{price.CacheWriteOther, &r.CacheWriteOther},
		{price.Output, &r.Output},
		{price.Reasoning, &r.Reasoning},
		{price.AudioIn, &r.AudioIn},
		{price.AudioOut, &r.AudioOut},
		{price.ImageIn, &r.ImageIn},
		{price.ImageOut, &r.ImageOut},
	}
}

// sheet converts a price and checks that it covers everything that a model of the type can use. An
// amount per million tokens is the same number as a rate.
func (b *builder) sheet(path string, t catalogkv.Type, e *PriceEntry) price.Sheet {
	s := price.Sheet{
		Rates:   b.rates(path, &e.RateEntry),
		Tiers:   b.tiers(path, e.Tiers),
		Images:  b.units(validation.Member(path, "images"), e.Images),
		Seconds: b.units(validation.Member(path, "seconds"), e.Seconds),
	}
	if e.ServerTool != nil {
		b.amount(validation.Member(path, "server_tool"), *e.ServerTool)
		s.ServerTool = int64(*e.ServerTool)
		s.FreeServerTool = s.ServerTool == 0
	}

	for i := range e.ServiceTiers {
		at := validation.Index(validation.Member(path, "service_tiers"), i)
		s.ServiceTiers = append(s.ServiceTiers, b.serviceTier(at, e, &s, i))
	}
	b.refuse(len(e.ServiceTiers) > 0 && t != catalogkv.Text, path, "service_tiers", "are for text models only")

	for i := range e.Secondary {
		s.Secondary = append(s.Secondary, b.second(validation.Index(validation.Member(path, "secondary"), i), e, i))
	}

	switch t {
	case catalogkv.Text:
		b.refuse(e.Input == nil, path, "input", "is needed for a text model")
		b.refuse(e.Output == nil, path, "output", "is needed for a text model")
	case catalogkv.Image:
		b.refuse(!hasDefault(e.Images), path, "images", "needs an entry without size and quality")
	case catalogkv.Video:
		b.refuse(!hasDefault(e.Seconds), path, "seconds", "needs an entry without size and quality")
	}

	return s
}

// tiers converts the prices for long inputs.
func (b *builder) tiers(path string, entries []TierEntry) []price.Tier {
	var tiers []price.Tier
	for i := range entries {
		at := validation.Index(validation.Member(path, "tiers"), i)
		tier := price.Tier{AboveInput: entries[i].AboveInput, Rates: b.rates(at, &entries[i].RateEntry)}
		rising := tier.AboveInput > 0 && (i == 0 || tier.AboveInput > entries[i-1].AboveInput)
		b.refuse(!rising, at, "above_input", "must be positive and greater than that of the tier before")
		b.refuse(len(tier.Rates) == 0, at, "", "names no price")
		tiers = append(tiers, tier)
	}
	return tiers
}

// serviceTier converts the prices of a service tier of a sheet. They must be complete: a price that was forgotten would be that
// of plain input or output, or that of short inputs, which may be far lower than what the provider asks for.
func (b *builder) serviceTier(path string, e *PriceEntry, s *price.Sheet, i int) price.ServiceTier {
	entry := &e.ServiceTiers[i]
	t := price.ServiceTier{Name: entry.Name, Rates: b.rates(path, &entry.RateEntry), Tiers: b.tiers(path, entry.Tiers)}
	if err := price.CheckServiceTierName(t.Name); err != nil {
		b.refuse(true, path, "name", "%v", err)
	}
	same := func(other ServiceTierEntry) bool { return other.Name == entry.Name }
	b.refuse(slices.ContainsFunc(e.ServiceTiers[:i], same), path, "name", "is the name of another entry")
	for _, line := range t.MissingLines(s) {
		b.refuse(true, path, string(line), "is needed, because the default service tier has a price for it")
	}
	if above := t.MissingLength(s); above > 0 {
		b.refuse(true, path, "tiers", "need an entry above_input %d, because the default service tier has one", above)
	}
	above, missing := t.MissingLongLines(s)
	for _, line := range missing {
		at := slices.IndexFunc(t.Tiers, func(tier price.Tier) bool { return tier.AboveInput == above })
		b.refuse(true, validation.Index(validation.Member(path, "tiers"), at), string(line),
			"is needed, because the default service tier has a price for it above %d", above)
	}
	return t
}

// sheet converts the price of a model of a type. The error is validation.Errors.
func (e *PriceEntry) sheet(t catalogkv.Type) (price.Sheet, error) {
	b := builder{}
	sheet := b.sheet("price", t, e)
	return sheet, b.invalid.Err()
}

// ServiceTier returns the prices of a service tier, nil if there are none.
func (e *PriceEntry) ServiceTier(name string) *ServiceTierEntry {
	for i := range e.ServiceTiers {
		if e.ServiceTiers[i].Name == name {
			return &e.ServiceTiers[i]
		}
	}
	return nil
}

// Check returns validation.Errors if the price is invalid or incomplete for a model of the type.
func (e *PriceEntry) Check(t catalogkv.Type) error {
	_, err := e.sheet(t)
	return err
}

// second converts the price of a secondary model. Each kind needs an entry that matches any model,
// since the model that a provider calls is not known in advance.
func (b *builder) second(path string, e *PriceEntry, i int) price.SecondaryPrice {
	entry := &e.Secondary[i]
	p := price.SecondaryPrice{
		Kind:   entry.Kind,
		Model:  entry.Model,
		Rates:  b.rates(path, &entry.RateEntry),
		Images: b.units(validation.Member(path, "images"), entry.Images),
	}

	known := entry.Kind == price.ImageTool || entry.Kind == price.SVG || entry.Kind == price.Advisor
	b.refuse(!known, path, "kind", "must be image_tool, svg or advisor")
	b.refuse(entry.Input == nil, path, "input", "is needed")
	b.refuse(entry.Output == nil, path, "output", "is needed")

	same := func(model string) func(SecondaryEntry) bool {
		return func(other SecondaryEntry) bool { return other.Kind == entry.Kind && other.Model == model }
	}
	b.refuse(slices.ContainsFunc(e.Secondary[:i], same(entry.Model)), path, "", "has the kind and model of another entry")
	b.refuse(!slices.ContainsFunc(e.Secondary, same("")), path, "model", "needs an entry of its kind without a model beside it")

	return p
}

func (b *builder) rates(path string, e *RateEntry) price.Rates {
	var rates price.Rates
	for _, each := range e.lines() {
		if *each.rate == nil {
			continue
		}
		if rates == nil {
			rates = price.Rates{}
		}
		b.amount(validation.Member(path, string(each.line)), **each.rate)
		rates[each.line] = int64(**each.rate)
	}
	return rates
}

func (b *builder) units(path string, entries []UnitEntry) []price.UnitPrice {
	var units []price.UnitPrice
	seen := map[[2]string]bool{}
	for i, e := range entries {
		at := validation.Index(path, i)
		b.amount(validation.Member(at, "price"), e.Price)
		of := [2]string{e.Size, e.Quality}
		b.refuse(seen[of], at, "", "has the size and quality of another entry")
		seen[of] = true
		units = append(units, price.UnitPrice{Size: e.Size, Quality: e.Quality, Price: int64(e.Price)})
	}
	return units
}

func (b *builder) amount(path string, a Amount) { b.refuse(a < 0, path, "", "must not be negative") }

func hasDefault(entries []UnitEntry) bool {
	for _, e := range entries {
		if e.Size == "" && e.Quality == "" {
			return true
		}
	}
	return false
}

// PriceEntryOf returns the document form of a price sheet.
func PriceEntryOf(s *price.Sheet) PriceEntry { return priceEntry(s) }

func priceEntry(s *price.Sheet) PriceEntry {
	e := PriceEntry{
		RateEntry: rateEntry(s.Rates),
		Tiers:     tierEntries(s.Tiers),
		Images:    unitEntries(s.Images),
		Seconds:   unitEntries(s.Seconds),
	}
	for _, t := range s.ServiceTiers {
		e.ServiceTiers = append(e.ServiceTiers, ServiceTierEntry{Name: t.Name, RateEntry: rateEntry(t.Rates), Tiers: tierEntries(t.Tiers)})
	}

	if s.HasServerToolPrice() {
		tool := Amount(s.ServerTool)
		e.ServerTool = &tool
	}

	for _, p := range s.Secondary {
		e.Secondary = append(e.Secondary, SecondaryEntry{
			Kind:      p.Kind,
			Model:     p.Model,
			RateEntry: rateEntry(p.Rates),
			Images:    unitEntries(p.Images),
		})
	}

	return e
}

func tierEntries(tiers []price.Tier) []TierEntry {
	var entries []TierEntry
	for _, t := range tiers {
		entries = append(entries, TierEntry{AboveInput: t.AboveInput, RateEntry: rateEntry(t.Rates)})
	}
	return entries
}

func rateEntry(rates price.Rates) RateEntry {
	var e RateEntry
	for _, each := range e.lines() {
		if rate, ok := rates[each.line]; ok {
			amount := Amount(rate)
			*each.rate = &amount
		}
	}
	return e
}

func unitEntries(units []price.UnitPrice) []UnitEntry {
	var entries []UnitEntry
	for _, u := range units {
		entries = append(entries, UnitEntry{Size: u.Size, Quality: u.Quality, Price: Amount(u.Price)})
	}
	return entries
}
