package priceform

import (
	"fmt"
	"strings"

	"modelgateway/controlplane/adminclient"
)

// Line is one line of a price. Amount is the text of the API.
type Line struct{ Name, Per, Amount string }

const (
	// PerTokens is what the price of a kind of tokens is for.
	PerTokens = "1M tokens"
	perImage  = "image"
	perSecond = "second"
	perCall   = "call"
)

// tokenLines are the kinds of tokens in the order of a receipt. member is the API's name of the price; usual are those that
// most models have.
var tokenLines = [...]struct {
	member, name string
	usual        bool
}{
	{"input", "input", true},
	{"cached_input", "cached input", true},
	{"cache_write_5m", "cache write, 5 min", false},
	{"cache_write_30m", "cache write, 30 min", false},
	{"cache_write_1h", "cache write, 1 h", false},
	{"cache_write_12h", "cache write, 12 h", false},
	{"cache_write_other", "cache write, other", false},
	{"output", "output", true},
	{"reasoning", "reasoning", false},
	{"audio_in", "audio in", false},
	{"audio_out", "audio out", false},
	{"image_in", "image in", false},
	{"image_out", "image out", false},
}

// tokenPrices returns the lines of the prices of tokens, which prices, tiers and secondary models have in common: in values by
// the paths of members, those below a path.
func tokenPrices(values map[string]string, path, suffix string) []Line {
	var all []Line
	for _, line := range tokenLines {
		if amount, ok := values[path+"."+line.member]; ok {
			all = append(all, Line{line.name + suffix, PerTokens, amount})
		}
	}
	return all
}

// tierPrices returns the lines of the prices of tokens below a path, and those for long inputs.
func tierPrices(values map[string]string, path, suffix string, tiers []adminclient.CatalogTier) []Line {
	all := tokenPrices(values, path, suffix)
	for i := range tiers {
		above := fmt.Sprintf("%s, above %d input tokens", suffix, tiers[i].AboveInput)
		all = append(all, tokenPrices(values, fmt.Sprintf("%s.tiers[%d]", path, i), above)...)
	}
	return all
}

// Lines returns the lines of a price in the order of a receipt.
func Lines(p *adminclient.CatalogPrice) []Line {
	values := textsOf(ofModel, p)
	all := tierPrices(values, ofModel, "", p.Tiers)
	for i := range p.ServiceTiers {
		tier := &p.ServiceTiers[i]
		all = append(all, tierPrices(values, fmt.Sprintf("price.service_tiers[%d]", i), ", "+tier.Name, tier.Tiers)...)
	}

	all = append(all, unitLines("image", perImage, p.Images)...)
	all = append(all, unitLines("video", perSecond, p.Seconds)...)
	if p.ServerTool != nil {
		all = append(all, Line{"server tool", perCall, *p.ServerTool})
	}

	for i := range p.Secondary {
		s := &p.Secondary[i]
		suffix := ", " + string(s.Kind)
		if s.Model != nil {
			suffix += " " + *s.Model
		}
		all = append(all, tokenPrices(values, fmt.Sprintf("price.secondary[%d]", i), suffix)...)
		all = append(all, unitLines("image"+suffix, perImage, s.Images)...)
	}

	return all
}

func unitLines(name, per string, units []adminclient.CatalogUnitPrice) []Line {
	var all []Line
	for _, u := range units {
		parts := []string{name}
		for _, part := range []*string{u.Size, u.Quality} {
			if part != nil && *part != "" {
				parts = append(parts, *part)
			}
		}
		all = append(all, Line{strings.Join(parts, ", "), per, u.Price})
	}
	return all
}

// Text returns a price in one line, such as "input 0.10 · output 0.40".
func Text(p *adminclient.CatalogPrice) string {
	lines := Lines(p)
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = line.Name + " " + line.Amount
	}
	return strings.Join(texts, " · ")
}

// Changes tells how a price differs from another, one line each.
func Changes(before, after *adminclient.CatalogPrice) []string {
	old := map[string]Line{}
	for _, line := range Lines(before) {
		old[line.Name] = line
	}

	var changes []string
	for _, line := range Lines(after) {
		was, ok := old[line.Name]
		delete(old, line.Name)
		switch {
		case !ok:
			changes = append(changes, fmt.Sprintf("%s: new, %s per %s", line.Name, line.Amount, line.Per))
		case was.Amount != line.Amount:
			changes = append(changes, fmt.Sprintf("%s: %s → %s per %s", line.Name, was.Amount, line.Amount, line.Per))
		}
	}

	for _, line := range Lines(before) {
		if _, gone := old[line.Name]; gone {
			changes = append(changes, fmt.Sprintf("%s: %s per %s is removed", line.Name, line.Amount, line.Per))
		}
	}

	return changes
}
