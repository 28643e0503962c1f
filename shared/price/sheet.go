package price

import (
	"errors"
	"fmt"
	"slices"
)

// Line names a kind of quantity that has a price.
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

// parents says which line's rate stands in where a sheet names none.
var parents = map[Line]Line{
	CachedInput: Input, CacheWrite5m: Input, CacheWrite1h: Input, CacheWrite30m: Input, CacheWrite12h: Input,
	CacheWriteOther: Input, AudioIn: Input, ImageIn: Input,
	Reasoning: Output, AudioOut: Output, ImageOut: Output,
}

// Rates holds nano-units per million tokens by line. A line that is missing
// takes its parent's rate: input for all input lines, output for all output
// lines.
type Rates map[Line]int64

// lookup finds the rate of a line: its own before its parent's, the tier's
// before the sheet's.
func lookup(l Line, tier, sheet Rates) (int64, bool) {
	for _, name := range [...]Line{l, parents[l]} {
		for _, rates := range [...]Rates{tier, sheet} {
			if rate, ok := rates[name]; ok {
				return rate, true
			}
		}
	}
	return 0, false
}

// Tier replaces rates when a request's whole input is longer than AboveInput
// tokens. A line it does not name keeps the rate of the sheet.
type Tier struct {
	AboveInput int64 `json:"above_input"`
	Rates      Rates `json:"rates"`
}

// UnitPrice is the price of one image or one second. An empty Size or Quality
// fits any.
type UnitPrice struct {
	Size    string `json:"size,omitempty"`
	Quality string `json:"quality,omitempty"`
	// Price is nano-units per image or per second.
	Price int64 `json:"price"`
}

// Sheet is one version of a model's prices. A version is never changed once
// it has been used: a new price is a new version.
type Sheet struct {
	// Version identifies the sheet among all sheets of all models.
	Version int64 `json:"version"`
	// Rates price tokens, in nano-units per million; Tiers replace them for long inputs.
	Rates Rates  `json:"rates,omitempty"`
	Tiers []Tier `json:"tiers,omitempty"`
	// Images and Seconds price pictures and video; the most specific entry wins.
	Images  []UnitPrice `json:"images,omitempty"`
	Seconds []UnitPrice `json:"seconds,omitempty"`
	// ServerTool is nano-units per call of a tool that the provider runs; zero means such tools are not sold (parameter policies refuse them).
	ServerTool int64 `json:"server_tool,omitempty"`
	// Secondary prices the models that a provider calls in; a kind without an entry for any model is not sold.
	Secondary []SecondaryPrice `json:"secondary,omitempty"`
	// Multiplier is what an account pays of these prices; zero means One. The catalog's own sheets have none: For sets it.
	Multiplier Multiplier `json:"multiplier,omitempty"`
}

// Validate reports every fault of the sheet, joined.
func (s *Sheet) Validate() error {
	var faults []error
	check := func(where string, rates Rates) {
		for line, rate := range rates {
			if parents[line] == "" && line != Input && line != Output {
				faults = append(faults, fmt.Errorf("price: %s: no token line is called %q", where, line))
			}
			if rate < 0 {
				faults = append(faults, fmt.Errorf("price: %s: rate of %q is negative", where, line))
			}
		}
	}
	check("rates", s.Rates)
	for i, tier := range s.Tiers {
		check(fmt.Sprintf("tier above %d", tier.AboveInput), tier.Rates)
		if tier.AboveInput <= 0 || (i > 0 && tier.AboveInput <= s.Tiers[i-1].AboveInput) {
			faults = append(faults, fmt.Errorf("price: tiers are not in rising order at %d", tier.AboveInput))
		}
	}
	for _, unit := range slices.Concat(s.Images, s.Seconds) {
		if unit.Price < 0 {
			faults = append(faults, fmt.Errorf("price: unit price of size %q, quality %q is negative", unit.Size, unit.Quality))
		}
	}
	if s.ServerTool < 0 {
		faults = append(faults, errors.New("price: server_tool is negative"))
	}
	if s.Multiplier != 0 {
		faults = append(faults, errors.New("price: multipliers belong to accounts, not to sheets"))
	}
	if len(s.Rates) == 0 && len(s.Images) == 0 && len(s.Seconds) == 0 {
		faults = append(faults, errors.New("price: the sheet prices nothing"))
	}
	faults = append(faults, s.validateSecondary())
	return errors.Join(faults...)
}

// tier returns the rates that replace the sheet's for an input of n tokens.
func (s *Sheet) tier(n int64) Rates {
	var found Rates
	for _, t := range s.Tiers {
		if n > t.AboveInput {
			found = t.Rates
		}
	}
	return found
}

// unit finds the price of one image or second: an exact match first, then by
// size, then by quality, then the default entry.
func unit(prices []UnitPrice, size, quality string) (int64, bool) {
	best, found := -1, int64(0)
	for _, p := range prices {
		if (p.Size != "" && p.Size != size) || (p.Quality != "" && p.Quality != quality) {
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
