package price

import (
	"errors"
	"fmt"
	"slices"

	"modelgateway/shared/money"
)

// DefaultTier is the service tier that the sheet's own rates are for. A usage without a service tier has this one.
const DefaultTier = "default"

// ServiceTier has the prices of tokens in a service tier that providers offer besides the default one, such as priority or
// flex. They are complete: none of the sheet's own rates applies.
type ServiceTier struct {
	Name  string `json:"name"`
	Rates Rates  `json:"rates"`
	// Tiers override Rates for long inputs, as those of the sheet do.
	Tiers []Tier `json:"tiers,omitempty"`
}

// HasServiceTier reports whether a service tier has prices of its own.
func (s *Sheet) HasServiceTier(name string) bool { return s.serviceTier(name) != nil }

func (s *Sheet) serviceTier(name string) *ServiceTier {
	for i := range s.ServiceTiers {
		if s.ServiceTiers[i].Name == name {
			return &s.ServiceTiers[i]
		}
	}
	return nil
}

// ratesOf returns the prices of tokens that apply to a usage: those of its service tier, and those that override them for its
// input.
func (s *Sheet) ratesOf(u *Usage) (tier, rates Rates, err error) {
	rates, tiers := s.Rates, s.Tiers
	if name := u.ServiceTier; name != "" && name != DefaultTier {
		service := s.serviceTier(name)
		if service == nil {
			return nil, nil, fmt.Errorf("%w for the service tier %q", ErrUnpriced, name)
		}
		rates, tiers = service.Rates, service.Tiers
	}
	return tierOf(tiers, u.TotalInput()), rates, nil
}

// Dearest returns the highest cost of a usage in the default service tier and in some others, and the service tier that
// costs so much, so that nothing is lost by not knowing which of them a provider will choose.
func Dearest(u *Usage, s *Sheet, others []string) (tier string, cost money.Nano, err error) {
	in := *u
	in.ServiceTier = ""
	if cost, err = Cost(&in, s); err != nil {
		return "", 0, err
	}

	for _, in.ServiceTier = range others {
		other, err := Cost(&in, s)
		if err != nil {
			return "", 0, err
		}
		if other > cost {
			tier, cost = in.ServiceTier, other
		}
	}

	return tier, cost, nil
}

// reservedTiers are the names that providers have for their default service tier, and for the choice between all of them.
var reservedTiers = []string{DefaultTier, "standard", "standard_only", "on_demand", "auto"}

// CheckServiceTierName returns an error if a service tier with prices of its own cannot have the name.
func CheckServiceTierName(name string) error {
	if slices.Contains(reservedTiers, name) {
		return fmt.Errorf("%q names the default service tier or the choice of one, which have no prices of their own", name)
	}
	letter := func(c rune) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' }
	if name == "" || len(name) > 32 || slices.ContainsFunc([]rune(name), func(c rune) bool { return !letter(c) }) {
		return errors.New("must be 1 to 32 lower-case letters, digits and _")
	}
	return nil
}

// MissingLines returns the lines that the sheet has a rate for and the service tier has none. No rate of the sheet applies in
// its place, and that of plain input or output may be far lower.
func (t *ServiceTier) MissingLines(s *Sheet) []Line {
	var missing []Line
	for _, k := range Kinds {
		_, needed := s.Rates[k.Line]
		if _, has := t.Rates[k.Line]; needed && !has {
			missing = append(missing, k.Line)
		}
	}
	return missing
}

// MissingLength returns a length of input from which on the sheet has another price, and the service tier has not; zero if
// there is none.
func (t *ServiceTier) MissingLength(s *Sheet) int64 {
	for i := range s.Tiers {
		if t.longTier(s.Tiers[i].AboveInput) == nil {
			return s.Tiers[i].AboveInput
		}
	}
	return 0
}

// MissingLongLines returns the lines that the sheet has a rate for above a length of input and the service tier has none, and the
// length; zero if there are none. The rate for short inputs would apply in its place.
func (t *ServiceTier) MissingLongLines(s *Sheet) (above int64, missing []Line) {
	for i := range s.Tiers {
		long := &s.Tiers[i]
		own := t.longTier(long.AboveInput)
		if own == nil {
			continue
		}
		for _, k := range Kinds {
			_, needed := long.Rates[k.Line]
			if _, has := own.Rates[k.Line]; needed && !has {
				missing = append(missing, k.Line)
			}
		}
		if len(missing) > 0 {
			return long.AboveInput, missing
		}
	}
	return 0, nil
}

func (t *ServiceTier) longTier(above int64) *Tier {
	for i := range t.Tiers {
		if t.Tiers[i].AboveInput == above {
			return &t.Tiers[i]
		}
	}
	return nil
}

// validateServiceTiers returns everything that is wrong with the service tiers, joined.
func (s *Sheet) validateServiceTiers() error {
	var errs []error
	for i := range s.ServiceTiers {
		t := &s.ServiceTiers[i]
		refuse := func(err error) { errs = append(errs, fmt.Errorf("price: service tier %q: %w", t.Name, err)) }
		if err := CheckServiceTierName(t.Name); err != nil {
			refuse(err)
		}
		if s.serviceTier(t.Name) != t {
			refuse(errors.New("it has two prices"))
		}
		if missing := t.MissingLines(s); len(missing) > 0 || len(s.Rates) == 0 {
			refuse(fmt.Errorf("it needs a rate for each line of the default tier, and has none for %v", missing))
		}
		if above := t.MissingLength(s); above > 0 {
			refuse(fmt.Errorf("it needs a tier above %d, as the default one has", above))
		}
		if above, missing := t.MissingLongLines(s); len(missing) > 0 {
			refuse(fmt.Errorf("above %d it needs a rate for each line of the default tier, and has none for %v", above, missing))
		}
		if err := (&Sheet{Rates: t.Rates, Tiers: t.Tiers}).Validate(); err != nil {
			refuse(err)
		}
	}
	return errors.Join(errs...)
}
