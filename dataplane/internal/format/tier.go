package format

import (
	"cmp"
	"slices"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/price"
)

const (
	// anyTier in Param.Tiers stands for the name of every service tier.
	anyTier = "*"
	// AutoTier leaves the choice of a service tier to the provider.
	AutoTier = "auto"
	// FastTier is the service tier of the fast mode of the messages format, which has a parameter of its own.
	FastTier = "fast"
)

// autoTiers are those that providers choose by themselves. A request that leaves them the choice is sent as such only if one
// of them has prices.
var autoTiers = []string{"priority", "scale"}

// ServiceTiers are the service tiers in which a request may be answered.
type ServiceTiers struct {
	// Asked is the one that it asks for, empty if that is the default one or the choice of the provider.
	Asked string
	// Others are all of those besides the default one, in which a provider may answer any request.
	Others []string
}

// With returns the service tiers of a request that may be answered in those of t or in others.
func (t ServiceTiers) With(others ServiceTiers) ServiceTiers {
	t.Asked = cmp.Or(t.Asked, others.Asked)
	for _, name := range others.Others {
		if !slices.Contains(t.Others, name) {
			t.Others = append(slices.Clip(t.Others), name)
		}
	}
	return t
}

// ServiceTiers returns the service tiers in which a provider may answer the request, by a policy that has accepted it.
func (r *Request) ServiceTiers(p *Policy, rules Rules) (tiers ServiceTiers) {
	if rules.Sheet == nil || len(rules.Sheet.ServiceTiers) == 0 {
		return tiers
	}
	for _, row := range p.tiered {
		for _, name := range row.tiersFor(r.Value(row.Name), rules.Sheet) {
			if !slices.Contains(tiers.Others, name) {
				tiers.Others = append(tiers.Others, name)
			}
			if text, _ := jsonspan.Text(nil, r.Value(row.Name)); string(text) == name {
				tiers.Asked = name
			}
		}
	}
	return tiers
}

// tiersFor returns the service tiers besides the default one in which a request with this value may be answered: none if it
// asks for no other tier, or for one without prices.
func (row *Param) tiersFor(raw []byte, sheet *price.Sheet) (names []string) {
	if len(row.Tiers) == 0 || sheet == nil || len(sheet.ServiceTiers) == 0 || raw == nil {
		return nil
	}
	text, _ := jsonspan.Text(nil, raw)
	name := string(text)
	switch {
	case !slices.Contains(row.Tiers, name) && !slices.Contains(row.Tiers, anyTier):
	case name == AutoTier && slices.ContainsFunc(autoTiers, sheet.HasServiceTier):
		for i := range sheet.ServiceTiers {
			if name := sheet.ServiceTiers[i].Name; name != FastTier {
				names = append(names, name)
			}
		}
	case sheet.HasServiceTier(name):
		names = []string{name}
	}
	return names
}

// WithoutServiceTiers returns the policy for a provider that has none but the default one. Requests for another are refused.
func (p *Policy) WithoutServiceTiers() *Policy {
	var rows []Param
	for row := range p.all() {
		row := *row
		row.Tiers = nil
		rows = append(rows, row)
	}
	return NewPolicy(rows...)
}
