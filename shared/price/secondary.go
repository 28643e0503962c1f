package price

import (
	"errors"
	"fmt"
	"slices"

	"modelgateway/shared/internal/jsonappend"
)

// The kinds of models that a provider calls in besides the one that was asked.
const (
	// ImageTool makes pictures within an answer of text.
	ImageTool = "image_tool"
	// SVG draws what a model of pictures has planned.
	SVG = "svg"
	// Advisor is a model that another one asks for advice.
	Advisor = "advisor"
)

// Secondary is what a second model used for the same request, which has prices
// of its own. Its members mean what those of Usage do; the zero value is none.
type Secondary struct {
	// Kind is ImageTool, SVG or Advisor; Model is the provider's name of it, empty if it gives none.
	Kind         string `json:"kind,omitempty"`
	Model        string `json:"model,omitempty"`
	Input        int64  `json:"input,omitempty"`
	CachedInput  int64  `json:"cached_input,omitempty"`
	CacheWrite5m int64  `json:"cache_write_5m,omitempty"`
	CacheWrite1h int64  `json:"cache_write_1h,omitempty"`
	ImageIn      int64  `json:"image_in,omitempty"`
	Output       int64  `json:"output,omitempty"`
	Reasoning    int64  `json:"reasoning,omitempty"`
	ImageOut     int64  `json:"image_out,omitempty"`
	Images       int64  `json:"images,omitempty"`
}

// SecondaryPrice is the price of a second model of a kind. An empty Model fits
// any.
type SecondaryPrice struct {
	Kind  string `json:"kind"`
	Model string `json:"model,omitempty"`
	// Rates price its tokens; Images, if there are any, its pictures besides.
	Rates  Rates       `json:"rates,omitempty"`
	Images []UnitPrice `json:"images,omitempty"`
}

// Sells tells whether second models of a kind have a price.
func (s *Sheet) Sells(kind string) bool {
	return slices.ContainsFunc(s.Secondary, func(p SecondaryPrice) bool { return p.Kind == kind && p.Model == "" })
}

// secondary finds the price of a second model, by its name before any.
func (s *Sheet) secondary(kind, model string) *SecondaryPrice {
	var found *SecondaryPrice
	for i := range s.Secondary {
		switch p := &s.Secondary[i]; {
		case p.Kind != kind:
		case p.Model == model:
			return p
		case p.Model == "":
			found = p
		}
	}
	return found
}

// eachSecondary is each for the second model. Its lines bear its kind.
func (s *Sheet) eachSecondary(second *Secondary, add func(Item) error) error {
	if *second == (Secondary{}) {
		return nil
	}
	p := s.secondary(second.Kind, second.Model)
	if p == nil {
		return fmt.Errorf("%w for a second model, %s", ErrUnpriced, second.Kind)
	}
	sheet := Sheet{Rates: p.Rates, Images: p.Images}
	usage := Usage{
		Input: second.Input, CachedInput: second.CachedInput, CacheWrite5m: second.CacheWrite5m, CacheWrite1h: second.CacheWrite1h, ImageIn: second.ImageIn,
		Output: second.Output, Reasoning: second.Reasoning, ImageOut: second.ImageOut, Images: second.Images,
	}
	return sheet.each(&usage, func(i Item) error {
		i.Line = Line(second.Kind) + "." + i.Line
		return add(i)
	})
}

// validateSecondary reports every fault of the prices of second models.
func (s *Sheet) validateSecondary() error {
	var faults []error
	for i, p := range s.Secondary {
		if !slices.Contains([]string{ImageTool, SVG, Advisor}, p.Kind) {
			faults = append(faults, fmt.Errorf("price: no second model is of the kind %q", p.Kind))
		}
		if slices.ContainsFunc(s.Secondary[:i], func(q SecondaryPrice) bool { return q.Kind == p.Kind && q.Model == p.Model }) {
			faults = append(faults, fmt.Errorf("price: the second model %s %q has two prices", p.Kind, p.Model))
		}
		if err := (&Sheet{Rates: p.Rates, Images: p.Images}).Validate(); err != nil {
			faults = append(faults, fmt.Errorf("price: second model %s: %w", p.Kind, err))
		}
	}
	return errors.Join(faults...)
}

// appendMembers appends the members of the JSON object, without its braces.
func (s *Secondary) appendMembers(b []byte) []byte {
	b = jsonappend.NonEmpty(b, "kind", s.Kind)
	b = jsonappend.NonEmpty(b, "model", s.Model)
	b = jsonappend.NonZero(b, "input", s.Input)
	b = jsonappend.NonZero(b, "cached_input", s.CachedInput)
	b = jsonappend.NonZero(b, "cache_write_5m", s.CacheWrite5m)
	b = jsonappend.NonZero(b, "cache_write_1h", s.CacheWrite1h)
	b = jsonappend.NonZero(b, "image_in", s.ImageIn)
	b = jsonappend.NonZero(b, "output", s.Output)
	b = jsonappend.NonZero(b, "reasoning", s.Reasoning)
	b = jsonappend.NonZero(b, "image_out", s.ImageOut)
	return jsonappend.NonZero(b, "images", s.Images)
}
