package pricelist

import (
	"cmp"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/shared/catalogkv"
)

// sized is an entry for one size and quality of the pictures of a model, such
// as "hd/1024-x-1792/example-picture".
type sized struct {
	// name is the entry's, model that of the model, without the provider.
	name, provider, model string
	formats               []catalogkv.Format
	unit                  catalog.UnitEntry
}

var (
	sizePart    = regexp.MustCompile(`^([1-9][0-9]{0,4})-x-([1-9][0-9]{0,4})$`)
	qualityPart = regexp.MustCompile(`^[a-z]{1,20}$`)
)

// readSized reads the entry of a size or quality of a model.
func (r *reader) readSized(m *member, provider, upstream string, formats []catalogkv.Format) {
	parts := strings.Split(upstream, "/")
	s := sized{name: m.name, provider: provider, model: parts[len(parts)-1], formats: formats}
	pixels := big.NewRat(0, 1)
	for _, part := range parts[:len(parts)-1] {
		size := sizePart.FindStringSubmatch(part)
		switch {
		case size != nil && s.unit.Size == "":
			s.unit.Size = size[1] + "x" + size[2]
			width, _ := new(big.Rat).SetString(size[1]) // digits
			height, _ := new(big.Rat).SetString(size[2])
			pixels.Mul(width, height)
		case qualityPart.MatchString(part) && s.unit.Quality == "":
			s.unit.Quality = part
		default:
			r.omit(m.name, "", "%q is neither a size nor a quality: the catalog prices pictures by nothing else", part)
			return
		}
	}
	if m.kind != catalogkv.Image {
		r.omit(m.name, "", "it is a variant of another model, and no picture")
		return
	}
	price, ok := m.picture(pixels)
	if !ok {
		return
	}
	s.unit.Price = price
	m.rest()
	r.sized[s.model] = append(r.sized[s.model], s)
}

// picture reads the price of one picture of a known size.
func (m *member) picture(pixels *big.Rat) (catalog.Amount, bool) {
	m.read = map[string]bool{}
	type source struct {
		member string
		per    *big.Rat
	}
	sources := []source{{"output_cost_per_image", one}, {"input_cost_per_image", one}}
	if pixels.Sign() > 0 {
		sources = append(sources, source{"output_cost_per_pixel", pixels}, source{"input_cost_per_pixel", pixels})
	}
	for _, s := range sources {
		amount, ok := m.amount(s.member, s.per)
		if !ok {
			return 0, false
		}
		if amount != nil && *amount > 0 {
			return *amount, true
		}
	}
	m.reader.omit(m.name, "", "it has no price for one picture")
	return 0, false
}

// placeSized puts sizes and qualities into the models that they are of.
func (r *reader) placeSized() {
	models := r.proposal.Document.Models
	for _, name := range slices.Sorted(maps.Keys(r.sized)) {
		found := r.sized[name]
		at := slices.IndexFunc(models, func(m catalog.ModelEntry) bool { return m.ID == name })
		switch {
		case at < 0:
			models = append(models, r.ofSizes(name, found))
		case models[at].Type != catalogkv.Image:
			r.omitSized(found, "the model is not one of pictures")
		case models[at].Price.RateEntry != (catalog.RateEntry{}):
			r.omitSized(found, "the model is priced by tokens, which its pictures are part of")
		default:
			models[at].Price.Images = append(models[at].Price.Images, r.units(found)...)
		}
	}
	r.proposal.Document.Models = models
}

// ofSizes makes a model of which the list has only sizes. A request may name
// none of them: then the dearest is charged.
func (r *reader) ofSizes(name string, found []sized) catalog.ModelEntry {
	units := r.units(found)
	dearest := slices.MaxFunc(units, func(a, b catalog.UnitEntry) int { return cmp.Compare(a.Price, b.Price) })
	r.omit(name, "", "the list has no price without size and quality: the dearest stands for it")
	r.used[found[0].provider] = true
	owner := id(found[0].provider)
	return catalog.ModelEntry{
		ID: name, Type: catalogkv.Image, OwnedBy: owner,
		Price:  catalog.PriceEntry{Images: append([]catalog.UnitEntry{{Price: dearest.Price}}, units...)},
		Routes: []catalog.RouteEntry{{Provider: owner, UpstreamModel: name, Formats: found[0].formats}},
	}
}

// units are the prices of sizes and qualities, each once.
func (r *reader) units(found []sized) []catalog.UnitEntry {
	var units []catalog.UnitEntry
	for _, s := range found {
		twice := slices.ContainsFunc(units, func(u catalog.UnitEntry) bool { return u.Size == s.unit.Size && u.Quality == s.unit.Quality })
		if twice {
			r.omit(s.name, "", "another entry is of this size and quality")
			continue
		}
		units = append(units, s.unit)
	}
	slices.SortFunc(units, func(a, b catalog.UnitEntry) int {
		return cmp.Or(cmp.Compare(a.Quality, b.Quality), cmp.Compare(a.Size, b.Size))
	})
	return units
}

func (r *reader) omitSized(found []sized, reason string) {
	for _, s := range found {
		r.omit(s.name, "", "%s", reason)
	}
}
