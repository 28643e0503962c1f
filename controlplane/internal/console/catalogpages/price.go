package catalogpages

import (
	"fmt"
	"strings"

	"modelgateway/controlplane/adminclient"
)

// priceLine is one line of a price. Amount is the text of the API.
type priceLine struct{ Name, Per, Amount string }

const (
	perTokens = "1M tokens"
	perImage  = "image"
	perSecond = "second"
	perCall   = "call"
)

// tokenPrices are the prices of tokens, which prices, tiers and secondary models have in common.
type tokenPrices struct {
	Input, CachedInput, CacheWrite5M, CacheWrite1H, CacheWrite30M, CacheWrite12H, CacheWriteOther *adminclient.Money
	Output, Reasoning, AudioIn, AudioOut, ImageIn, ImageOut                                       *adminclient.Money
}

func (p *tokenPrices) lines(suffix string) []priceLine {
	var all []priceLine
	for _, line := range []struct {
		name   string
		amount *adminclient.Money
	}{
		{"input", p.Input},
		{"cached input", p.CachedInput},
		{"cache write, 5 min", p.CacheWrite5M},
		{"cache write, 30 min", p.CacheWrite30M},
		{"cache write, 1 h", p.CacheWrite1H},
		{"cache write, 12 h", p.CacheWrite12H},
		{"cache write, other", p.CacheWriteOther},
		{"output", p.Output},
		{"reasoning", p.Reasoning},
		{"audio in", p.AudioIn},
		{"audio out", p.AudioOut},
		{"image in", p.ImageIn},
		{"image out", p.ImageOut},
	} {
		if line.amount != nil {
			all = append(all, priceLine{line.name + suffix, perTokens, *line.amount})
		}
	}

	return all
}

// priceLines returns the lines of a price in the order of a receipt.
func priceLines(p *adminclient.CatalogPrice) []priceLine {
	base := tokenPrices{
		p.Input, p.CachedInput, p.CacheWrite5M, p.CacheWrite1H, p.CacheWrite30M, p.CacheWrite12H, p.CacheWriteOther,
		p.Output, p.Reasoning, p.AudioIn, p.AudioOut, p.ImageIn, p.ImageOut,
	}
	all := base.lines("")
	for _, t := range p.Tiers {
		tier := tokenPrices{
			t.Input, t.CachedInput, t.CacheWrite5M, t.CacheWrite1H, t.CacheWrite30M, t.CacheWrite12H, t.CacheWriteOther,
			t.Output, t.Reasoning, t.AudioIn, t.AudioOut, t.ImageIn, t.ImageOut,
		}
		all = append(all, tier.lines(fmt.Sprintf(", above %d input tokens", t.AboveInput))...)
	}

	all = append(all, unitLines("image", perImage, p.Images)...)
	all = append(all, unitLines("video", perSecond, p.Seconds)...)
	if p.ServerTool != nil {
		all = append(all, priceLine{"server tool", perCall, *p.ServerTool})
	}

	for _, s := range p.Secondary {
		second := tokenPrices{
			s.Input, s.CachedInput, s.CacheWrite5M, s.CacheWrite1H, s.CacheWrite30M, s.CacheWrite12H, s.CacheWriteOther,
			s.Output, s.Reasoning, s.AudioIn, s.AudioOut, s.ImageIn, s.ImageOut,
		}
		suffix := ", " + string(s.Kind)
		if s.Model != nil {
			suffix += " " + *s.Model
		}
		all = append(all, second.lines(suffix)...)
		all = append(all, unitLines("image"+suffix, perImage, s.Images)...)
	}

	return all
}

func unitLines(name, per string, units []adminclient.CatalogUnitPrice) []priceLine {
	var all []priceLine
	for _, u := range units {
		parts := []string{name}
		for _, part := range []*string{u.Size, u.Quality} {
			if part != nil && *part != "" {
				parts = append(parts, *part)
			}
		}
		all = append(all, priceLine{strings.Join(parts, ", "), per, u.Price})
	}
	return all
}

// priceText returns a price in one line, such as "input 0.10 · output 0.40".
func priceText(p *adminclient.CatalogPrice) string {
	lines := priceLines(p)
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = line.Name + " " + line.Amount
	}
	return strings.Join(texts, " · ")
}

// priceChanges tells how a price differs from another, one line each.
func priceChanges(before, after *adminclient.CatalogPrice) []string {
	old := map[string]priceLine{}
	for _, line := range priceLines(before) {
		old[line.Name] = line
	}

	var changes []string
	for _, line := range priceLines(after) {
		was, ok := old[line.Name]
		delete(old, line.Name)
		switch {
		case !ok:
			changes = append(changes, fmt.Sprintf("%s: new, %s per %s", line.Name, line.Amount, line.Per))
		case was.Amount != line.Amount:
			changes = append(changes, fmt.Sprintf("%s: %s → %s per %s", line.Name, was.Amount, line.Amount, line.Per))
		}
	}

	for _, line := range priceLines(before) {
		if _, gone := old[line.Name]; gone {
			changes = append(changes, fmt.Sprintf("%s: %s per %s is removed", line.Name, line.Amount, line.Per))
		}
	}

	return changes
}
