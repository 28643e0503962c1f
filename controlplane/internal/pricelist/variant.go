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

// variant is an entry for one size and quality of the images of a model, such as "hd/1024-x-1792/example-picture".
type variant struct {
	// name is the name of the entry, model the name of the model without the provider.
	name, provider, model string
	formats               []catalogkv.Format
	unit                  catalog.UnitEntry
}

var (
	sizePart    = regexp.MustCompile(`^([1-9][0-9]{0,4})-x-([1-9][0-9]{0,4})$`)
	qualityPart = regexp.MustCompile(`^[a-z]{1,20}$`)
)

// readVariant converts the entry of a size or quality of a model.
func (r *reader) readVariant(m *member, provider, upstream string, formats []catalogkv.Format) {
	parts := strings.Split(upstream, "/")
	s := variant{
		name:     m.name,
		provider: provider,
		model:    parts[len(parts)-1],
		formats:  formats,
	}

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
			r.omit(m.name, "", "%q is neither a size nor a quality; the catalog prices images by these only", part)
			return
		}
	}

	if m.kind != catalogkv.Image {
		r.omit(m.name, "", "it is a variant of a model that does not generate images")
		return
	}

	price, ok := m.imagePrice(pixels)
	if !ok {
		return
	}

	s.unit.Price = price
	m.rest()
	r.variants[s.model] = append(r.variants[s.model], s)
}

// imagePrice reads the price of one image of a known size.
func (m *member) imagePrice(pixels *big.Rat) (catalog.Amount, bool) {
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

	m.reader.omit(m.name, "", "it has no price per image")
	return 0, false
}

// placeVariants adds the prices of sizes and qualities to their models.
func (r *reader) placeVariants() {
	models := r.proposal.Document.Models
	for _, name := range slices.Sorted(maps.Keys(r.variants)) {
		found := r.variants[name]
		at := slices.IndexFunc(models, func(m catalog.ModelEntry) bool { return m.ID == name })
		switch {
		case at < 0:
			models = append(models, r.modelOf(name, found))
		case models[at].Type != catalogkv.Image:
			r.omitVariants(found, "the model does not generate images")
		case models[at].Price.RateEntry != (catalog.RateEntry{}):
			r.omitVariants(found, "the model is priced by tokens, which include those of images")
		default:
			models[at].Price.Images = append(models[at].Price.Images, r.units(found)...)
		}
	}

	r.proposal.Document.Models = models
}

// modelOf returns a model of which the list has only variants. The highest price applies to requests whose size and
// quality are not in the list.
func (r *reader) modelOf(name string, found []variant) catalog.ModelEntry {
	units := r.units(found)
	highest := slices.MaxFunc(units, func(a, b catalog.UnitEntry) int { return cmp.Compare(a.Price, b.Price) })
	r.omit(name, "", "the list has no price without size and quality; the highest price is used")
	r.used[found[0].provider] = true
	owner := id(found[0].provider)
	return catalog.ModelEntry{
		ID:      name,
		Type:    catalogkv.Image,
		OwnedBy: owner,
		Price:   catalog.PriceEntry{Images: append([]catalog.UnitEntry{{Price: highest.Price}}, units...)},
		Routes:  []catalog.RouteEntry{{Provider: owner, UpstreamModel: name, Formats: found[0].formats}},
	}
}

// units returns the prices of sizes and qualities, without duplicates.
func (r *reader) units(found []variant) []catalog.UnitEntry {
	var units []catalog.UnitEntry
	for _, s := range found {
		duplicate := slices.ContainsFunc(
			units,
			func(u catalog.UnitEntry) bool { return u.Size == s.unit.Size && u.Quality == s.unit.Quality },
		)
		if duplicate {
			r.omit(s.name, "", "another entry has the same size and quality")
			continue
		}
		units = append(units, s.unit)
	}
	slices.SortFunc(units, func(a, b catalog.UnitEntry) int {
		return cmp.Or(cmp.Compare(a.Quality, b.Quality), cmp.Compare(a.Size, b.Size))
	})
	return units
}

func (r *reader) omitVariants(found []variant, reason string) {
	for _, s := range found {
		r.omit(s.name, "", "%s", reason)
	}
}
