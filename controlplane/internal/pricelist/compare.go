package pricelist

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"slices"
	"strings"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/validation"
)

// Status is the result for a model of the catalog.
type Status string

// The results.
const (
	Changed Status = "changed"
	Same    Status = "same"
	// Absent means that the list has no entry for the model.
	Absent Status = "absent"
	// Refused means that the list has an entry which cannot be used. The model keeps its price.
	Refused Status = "refused"
)

// Model is a model of the catalog beside the entry of the list for it.
type Model struct {
	ID     string
	Status Status
	// Entry is the name of the entry; empty if there is none.
	Entry         string
	Before, After catalog.PriceEntry
	// Problem is the reason why the entry is refused.
	Problem  string
	Warnings []string
}

// Unknown is an entry of the list for a model that the catalog does not have.
type Unknown struct {
	Entry    string
	Provider string
	Model    *catalog.ModelEntry
}

// Comparison has the changes that a price list would make to the prices of a catalog.
type Comparison struct {
	// Document is the catalog with the new prices. It has no grants, which a catalog without them keeps.
	Document *catalog.Document
	// Models are those of the catalog, in its order.
	Models  []Model
	Unknown []Unknown
}

// Compare compares the prices with those of a catalog, whose document it changes. The error is validation.Errors.
//
// An entry belongs to a model that has a route to it: one whose provider and upstream model are those of the entry. A model
// without such a route takes the entry that has its name. Prices that the list does not have are kept.
func (p *Proposal) Compare(doc *catalog.Document) (*Comparison, error) {
	doc.Currency = cmp.Or(doc.Currency, catalog.DefaultCurrency)
	if p.Document.Currency != doc.Currency {
		return nil, validation.New("currency", "is %s, but the prices of the catalog are in %s", p.Document.Currency, doc.Currency)
	}

	doc.Grants = nil
	c := &Comparison{Document: doc}
	used := map[string]bool{}
	for i := range doc.Models {
		m := &doc.Models[i]
		found, warning := p.entriesFor(m, doc.Providers)
		for _, e := range found {
			used[e.ID] = true
		}
		result := p.compare(m, found)
		if warning != "" && result.Status != Refused {
			result.Warnings = append([]string{warning}, result.Warnings...)
		}
		if result.Status == Changed {
			m.Price = result.After
		}
		c.Models = append(c.Models, result)
	}

	for i := range p.Document.Models {
		if e := &p.Document.Models[i]; !used[e.ID] {
			c.Unknown = append(c.Unknown, Unknown{p.nameOf(e), e.Routes[0].Provider, e})
		}
	}

	return c, nil
}

// entriesFor returns the entries for a model, with a warning if they only have its name.
func (p *Proposal) entriesFor(m *catalog.ModelEntry, configured []catalog.ProviderEntry) (found []*catalog.ModelEntry, warning string) {
	var named *catalog.ModelEntry
	for i := range p.Document.Models {
		e := &p.Document.Models[i]
		provider := e.Routes[0].Provider
		if slices.ContainsFunc(m.Routes, func(r catalog.RouteEntry) bool {
			return r.UpstreamModel == e.ID && leadsTo(provider, r.Provider, configured)
		}) {
			found = append(found, e)
		}
		if e.ID == m.ID {
			named = e
		}
	}

	if found == nil && named != nil {
		return []*catalog.ModelEntry{
			named,
		}, "The entry has the name of the model, but no route of the model leads to it at " + named.Routes[0].Provider + "."
	}

	return found, ""
}

// leadsTo reports whether a provider of the catalog is the one of an entry: by its id, or by the host of its address.
func leadsTo(provider, configured string, all []catalog.ProviderEntry) bool {
	if provider == configured {
		return true
	}
	at := slices.IndexFunc(all, func(e catalog.ProviderEntry) bool { return e.ID == configured })
	for name, known := range providers {
		if id(name) == provider && at >= 0 {
			host := hostOf(known.url)
			return host != "" && host == hostOf(all[at].BaseURL)
		}
	}
	return false
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// compare returns the result for a model.
func (p *Proposal) compare(m *catalog.ModelEntry, found []*catalog.ModelEntry) Model {
	result := Model{ID: m.ID, Before: m.Price, Status: Absent}
	if len(found) == 0 {
		return result
	}

	e := found[0]
	result.Entry = p.nameOf(e)
	refuse := func(format string, args ...any) Model {
		result.Status, result.Problem = Refused, fmt.Sprintf(format, args...)
		return result
	}

	for _, other := range found[1:] {
		if encode(other.Price) != encode(e.Price) {
			return refuse("Its routes lead to the entries %s and %s, which have different prices.", result.Entry, p.nameOf(other))
		}
	}

	if e.Type != m.Type {
		return refuse("The entry is for the type %s, the model has the type %s.", e.Type, m.Type)
	}

	after, kept := merge(&m.Price, &e.Price)
	if err := after.Check(m.Type); err != nil {
		return refuse("The price is invalid: %v.", err)
	}

	result.Status = Same
	if encode(after) != encode(m.Price) {
		result.Status, result.After = Changed, after
		if kept != nil {
			result.Warnings = append(
				result.Warnings,
				"The list has no price for "+strings.Join(kept, ", ")+", so that of the catalog is kept.",
			)
		}
		result.Warnings = append(result.Warnings, unusual(&m.Price, &after)...)
	}

	return result
}

// merge returns the price of the list, with what only the price of the catalog has. kept names it.
func merge(before, list *catalog.PriceEntry) (after catalog.PriceEntry, kept []string) {
	old, members := membersOf(before), membersOf(list)
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, has := members[name]; !has {
			members[name] = old[name]
			if name != "server_tool" && name != "secondary" && name != "service_tiers" { // they are not read of a list
				kept = append(kept, name)
			}
		}
	}

	decode(members, &after)
	after.ServiceTiers = nil
	for i := range list.ServiceTiers {
		after.ServiceTiers = append(after.ServiceTiers, mergeTier(before, &list.ServiceTiers[i]))
	}
	for i := range before.ServiceTiers {
		t := &before.ServiceTiers[i]
		if list.ServiceTier(t.Name) != nil {
			continue
		}
		after.ServiceTiers = append(after.ServiceTiers, *t)
		if slices.Contains(serviceTierNames, t.Name) {
			kept = append(kept, "service_tiers "+t.Name)
		}
	}

	for _, units := range []struct {
		name          string
		before, after *[]catalog.UnitEntry
	}{{"images", &before.Images, &after.Images}, {"seconds", &before.Seconds, &after.Seconds}} {
		for _, u := range *units.before {
			if !slices.ContainsFunc(*units.after, func(v catalog.UnitEntry) bool { return u.Size == v.Size && u.Quality == v.Quality }) {
				*units.after = append(*units.after, u)
				kept = append(kept, strings.Join(strings.Fields(units.name+" "+u.Size+" "+u.Quality), " "))
			}
		}
	}

	return after, kept
}

// mergeTier returns the prices of a service tier of the list, with those that only the catalog has.
func mergeTier(before *catalog.PriceEntry, list *catalog.ServiceTierEntry) (after catalog.ServiceTierEntry) {
	members := membersOf(list)
	if old := before.ServiceTier(list.Name); old != nil {
		for name, value := range membersOf(old) {
			if _, has := members[name]; !has {
				members[name] = value
			}
		}
	}
	decode(members, &after)
	return after
}

// decode reads the members of a price of two valid documents.
func decode(members map[string]json.RawMessage, into any) {
	text, err := json.Marshal(members)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		panic(err)
	}
}

// unusual returns warnings about prices that a mistake in the list would explain.
func unusual(before, after *catalog.PriceEntry) []string {
	old, now := amountsOf(&before.RateEntry), amountsOf(&after.RateEntry)
	for at, into := range []map[string]catalog.Amount{old, now} {
		for _, t := range [][]catalog.ServiceTierEntry{before.ServiceTiers, after.ServiceTiers}[at] {
			for name, amount := range amountsOf(&t.RateEntry) {
				into[t.Name+" "+name] = amount
			}
		}
	}
	for _, units := range [][2][]catalog.UnitEntry{{before.Images, after.Images}, {before.Seconds, after.Seconds}} {
		for at, into := range []map[string]catalog.Amount{old, now} {
			for _, u := range units[at] {
				into[strings.Join(strings.Fields("unit "+u.Size+" "+u.Quality), " ")] = u.Price
			}
		}
	}

	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, had := old[name]
		is := now[name]
		switch {
		case is == 0 && was != 0:
			warnings = append(warnings, "The price "+name+" becomes 0: it is free.")
		case !had || was == is || was == 0:
		case times(is, 1).Cmp(times(was, 2)) >= 0:
			warnings = append(warnings, "The price "+name+" becomes twice as high or more.")
		case times(is, 2).Cmp(times(was, 1)) <= 0:
			warnings = append(warnings, "The price "+name+" falls to half or less.")
		}
	}

	return warnings
}

func times(a catalog.Amount, factor int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(int64(a)), big.NewInt(factor))
}

// amountsOf returns the prices per million tokens by name.
func amountsOf(e *catalog.RateEntry) map[string]catalog.Amount {
	amounts := map[string]catalog.Amount{}
	if err := json.Unmarshal([]byte(encode(e)), &amounts); err != nil { // every member is an amount
		panic(err)
	}
	return amounts
}

func membersOf(e any) map[string]json.RawMessage {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(encode(e)), &members); err != nil { // encode returns an object
		panic(err)
	}
	return members
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // prices always marshal
		panic(err)
	}
	return string(text)
}

// nameOf returns the name in the list of the entry that a model was converted from.
func (p *Proposal) nameOf(e *catalog.ModelEntry) string {
	if name, ok := p.source[e.ID]; ok {
		return name
	}
	return e.ID // it has only variants by size and quality
}
