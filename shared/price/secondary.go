package price

import (
	"errors"
	"fmt"
	"slices"

	"modelgateway/shared/internal/jsonappend"
)

// The kinds of secondary models: models that a provider uses for a request
// besides the requested one.
const (
	// ImageTool generates images within a text answer.
	ImageTool = "image_tool"
	// SVG draws the image that an image model has planned.
	SVG = "svg"
	// Advisor advises the requested model.
	Advisor = "advisor"
)

// Secondary is the usage of a secondary model, which has its own prices. Its
// counts have the meaning of those of Usage. The zero value means none.
type Secondary struct {
	// Kind is ImageTool, SVG or Advisor. Model is the provider's name of the model, empty if unknown.
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

// SecondaryPrice is the price of a secondary model. An empty Model matches every
// model of the kind.
type SecondaryPrice struct {
	Kind  string `json:"kind"`
	Model string `json:"model,omitempty"`
	// Rates are the prices of tokens, Images those of images, if images have a price of their own.
	Rates  Rates       `json:"rates,omitempty"`
	Images []UnitPrice `json:"images,omitempty"`
}

// HasSecondaryPrice reports whether there is a price for every secondary model
// of a kind.
func (s *Sheet) HasSecondaryPrice(kind string) bool {
	return slices.ContainsFunc(s.Secondary, func(p SecondaryPrice) bool { return p.Kind == kind && p.Model == "" })
}

// secondaryPrice returns the price of a secondary model: that of the entry for the
// model, else for any of its kind, else nil.
func (s *Sheet) secondaryPrice(kind, model string) *SecondaryPrice {
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

// forEachSecondaryItem is forEachItem for the secondary model. Its lines are
// prefixed with the kind.
func (s *Sheet) forEachSecondaryItem(second *Secondary, add func(Item) error) error {
	if *second == (Secondary{}) {
		return nil
	}

	p := s.secondaryPrice(second.Kind, second.Model)
	if p == nil {
		return fmt.Errorf("%w for a secondary model of kind %s", ErrUnpriced, second.Kind)
	}

	sheet := Sheet{Rates: p.Rates, Images: p.Images}
	usage := Usage{
		Input:        second.Input,
		CachedInput:  second.CachedInput,
		CacheWrite5m: second.CacheWrite5m,
		CacheWrite1h: second.CacheWrite1h,
		ImageIn:      second.ImageIn,
		Output:       second.Output,
		Reasoning:    second.Reasoning,
		ImageOut:     second.ImageOut,
		Images:       second.Images,
	}

	return sheet.forEachItem(&usage, func(i Item) error {
		i.Line = Line(second.Kind) + "." + i.Line
		return add(i)
	})
}

// validateSecondary returns everything that is wrong with the prices of secondary
// models, joined.
func (s *Sheet) validateSecondary() error {
	var errs []error
	for i, p := range s.Secondary {
		if !slices.Contains([]string{ImageTool, SVG, Advisor}, p.Kind) {
			errs = append(errs, fmt.Errorf("price: unknown kind of secondary model %q", p.Kind))
		}
		if slices.ContainsFunc(s.Secondary[:i], func(q SecondaryPrice) bool { return q.Kind == p.Kind && q.Model == p.Model }) {
			errs = append(errs, fmt.Errorf("price: the secondary model %s %q has two prices", p.Kind, p.Model))
		}
		if err := (&Sheet{Rates: p.Rates, Images: p.Images}).Validate(); err != nil {
			errs = append(errs, fmt.Errorf("price: secondary model %s: %w", p.Kind, err))
		}
	}
	return errors.Join(errs...)
}

// appendMembers appends the JSON object without its braces.
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
