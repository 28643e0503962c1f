package price

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Line is a kind of quantity that has a price.
type Line string

// The lines of a price sheet and of a receipt.
const (
	Input           Line = "input"
	CachedInput     Line = "cached_input"
	CacheWrite5m    Line = "cache_write_5m"
	CacheWrite1h    Line = "cache_write_1h"
	CacheWrite30m   Line = "cache_write_30m"
	CacheWrite12h   Line = "cache_write_12h"
	CacheWriteOther Line = "cache_write_other"
	Output          Line = "output"
	Reasoning       Line = "reasoning"
	AudioIn         Line = "audio_in"
	AudioOut        Line = "audio_out"
	ImageIn         Line = "image_in"
	ImageOut        Line = "image_out"
	Images          Line = "images"
	Seconds         Line = "seconds"
	ServerTool      Line = "server_tool_requests"
)

// Rates holds nano-units per million tokens by line. A missing input line has
// the rate of Input, a missing output line that of Output.
type Rates map[Line]int64

// lookup returns the rate of a line. A rate of the line takes precedence over
// that of its fallback line, and a rate of the tier over that of the sheet.
func lookup(l Line, tier, sheet Rates) (int64, bool) {
	for _, name := range [...]Line{l, fallbackLines[l]} {
		for _, rates := range [...]Rates{tier, sheet} {
			if rate, ok := rates[name]; ok {
				return rate, true
			}
		}
	}
	return 0, false
}

// Tier overrides rates for requests whose TotalInput is above AboveInput. Lines
// that are missing in it keep the rate of the sheet.
type Tier struct {
	AboveInput int64 `json:"above_input"`
	Rates      Rates `json:"rates"`
}

// UnitPrice is the price of one image or one second of video. An empty Size or
// Quality matches any.
type UnitPrice struct {
	Size    string `json:"size,omitempty"`
	Quality string `json:"quality,omitempty"`
	// Price is nano-units per image or per second.
	Price int64 `json:"price"`
}

// Sheet is one version of a model's prices. A version that has been used never
// changes; new prices get a new version.
type Sheet struct {
	// Version is unique among the sheets of all models.
	Version int64 `json:"version"`
	// Rates are the prices of tokens. Tiers override them for long inputs, in ascending order of AboveInput.
	Rates Rates  `json:"rates,omitempty"`
	Tiers []Tier `json:"tiers,omitempty"`
	// ServiceTiers are the prices of tokens in other service tiers than the default one, which is that of Rates and Tiers.
	ServiceTiers []ServiceTier `json:"service_tiers,omitempty"`
	// Images and Seconds are the prices of images and video. The most specific entry applies.
	Images  []UnitPrice `json:"images,omitempty"`
	Seconds []UnitPrice `json:"seconds,omitempty"`
	// ServerTool is nano-units per call of a tool that the provider executes. Such tools are not offered if it is zero,
	// unless FreeServerTool says that zero is their price.
	ServerTool     int64 `json:"server_tool,omitempty"`
	FreeServerTool bool  `json:"free_server_tool,omitempty"`
	// Secondary holds the prices of secondary models. A kind without an entry for any model is not offered.
	Secondary []SecondaryPrice `json:"secondary,omitempty"`
	// Multiplier is the account's factor on these prices; zero means One. Sheets in the catalog have none, see
	// WithMultiplier.
	Multiplier Multiplier `json:"multiplier,omitempty"`
}

// Validate returns everything that is wrong with the sheet, joined.
func (s *Sheet) Validate() error {
	var errs []error
	check := func(where string, rates Rates) {
		for line, rate := range rates {
			if fallbackLines[line] == "" && line != Input && line != Output {
				errs = append(errs, fmt.Errorf("price: %s: unknown token line %q", where, line))
			}
			if rate < 0 {
				errs = append(errs, fmt.Errorf("price: %s: rate of %q is negative", where, line))
			}
		}
	}
	check("rates", s.Rates)

	for i, tier := range s.Tiers {
		check(fmt.Sprintf("tier above %d", tier.AboveInput), tier.Rates)
		if tier.AboveInput <= 0 || (i > 0 && tier.AboveInput <= s.Tiers[i-1].AboveInput) {
			errs = append(errs, fmt.Errorf("price: tiers are not in ascending order at %d", tier.AboveInput))
		}
	}

	for _, unit := range slices.Concat(s.Images, s.Seconds) {
		if unit.Price < 0 {
			errs = append(errs, fmt.Errorf("price: unit price of size %q, quality %q is negative", unit.Size, unit.Quality))
		}
	}

	if s.ServerTool < 0 {
		errs = append(errs, errors.New("price: server_tool is negative"))
	}
	if s.Multiplier != 0 {
		errs = append(errs, errors.New("price: a sheet in the catalog must not have a multiplier"))
	}
	if len(s.Rates) == 0 && len(s.Images) == 0 && len(s.Seconds) == 0 {
		errs = append(errs, errors.New("price: the sheet has no prices"))
	}

	errs = append(errs, s.validateServiceTiers(), s.validateSecondary())
	return errors.Join(errs...)
}

// HasServerToolPrice reports whether there is a price, perhaps zero, for calls of tools that the provider executes.
func (s *Sheet) HasServerToolPrice() bool { return s.ServerTool > 0 || s.FreeServerTool }

// HasRate reports whether a line of tokens has a rate of its own, not only that of its fallback line.
func (s *Sheet) HasRate(l Line) bool {
	_, ok := s.Rates[l]
	return ok
}

// tierOf returns the rates that override others for an input of n tokens.
func tierOf(tiers []Tier, n int64) Rates {
	var found Rates
	for _, t := range tiers {
		if n > t.AboveInput {
			found = t.Rates
		}
	}
	return found
}

// unitPrice returns the price of one image or second: that of the entry for size
// and quality, else for the size, else for the quality, else for any.
func unitPrice(prices []UnitPrice, size, quality string) (int64, bool) {
	size, quality = Word(size), Word(quality)
	best, found := -1, int64(0)
	for _, p := range prices {
		if (p.Size != "" && Word(p.Size) != size) || (p.Quality != "" && Word(p.Quality) != quality) {
			continue
		}
		score := 0
		if p.Size != "" {
			score += 2
		}
		if p.Quality != "" {
			score++
		}
		if score > best {
			best, found = score, p.Price
		}
	}

	return found, best >= 0
}

// Word returns a size or quality in the one spelling in which they are compared:
// providers also take others, such as 1024X1024, 1024*1024 or HIGH.
func Word(text string) string {
	isPlain := func(c byte) bool { return c-'0' <= 9 || c-'a' <= 'z'-'a' || c == '_' || c == '-' }
	plain := true
	for i := 0; i < len(text) && plain; i++ {
		plain = isPlain(text[i])
	}
	if plain {
		return text
	}
	return spellings.Replace(strings.ToLower(strings.Join(strings.Fields(text), "")))
}

var spellings = strings.NewReplacer("*", "x", "×", "x")
