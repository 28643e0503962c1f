// Package priceform shows prices as lines, and as forms with a field for every amount.
package priceform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// The form of a price has a field for every member of the API's price, named by its path, such as "price.tiers[0].input" or
// "provider_price.input". So a problem of the API stands at its field, and an address can fill the form in.

// ofModel is the path of the price of a model.
const ofModel = "price"

// spareUnits is the number of empty entries after those that a list of prices per image or second has.
const spareUnits = 2

// maxEntries bounds the entries of a list, whatever an address asks for.
const maxEntries = 50

// textsOf returns the texts of a price at a path by the paths of its members.
func textsOf(at string, price any) map[string]string {
	values := map[string]string{}
	text, err := json.Marshal(price)
	if err != nil {
		return values
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&tree) == nil {
		flatten(values, at, tree)
	}
	return values
}

func flatten(values map[string]string, path string, tree any) {
	switch v := tree.(type) {
	case map[string]any:
		for name, member := range v {
			flatten(values, path+"."+name, member)
		}
	case []any:
		for i, entry := range v {
			flatten(values, fmt.Sprintf("%s[%d]", path, i), entry)
		}
	case nil:
	default:
		values[path] = fmt.Sprint(v)
	}
}

// Query returns the values of an address that fill the form of a price in. What only the price in force has is emptied.
func Query(inForce, price any) url.Values {
	query := url.Values{}
	for path := range textsOf(ofModel, inForce) {
		query.Set(path, "")
	}
	for path, value := range textsOf(ofModel, price) {
		query.Set(path, value)
	}
	return query
}

// Fields makes the fields of a price and reads them.
type Fields struct {
	// at is the path of the price in the body of the operation.
	at string
	// title is what the titles of all groups begin with. With one, all fields are folded while they are empty.
	title    string
	currency string
	// inForce are the values of the price in force by the paths of members.
	inForce map[string]string
	// paths are those of the price in force and of the request. They tell how many entries a list has.
	paths []string
	// All are the fields that were made.
	All []kit.Field
	// moved are the paths of entries that were read, as the API names them, with those of the form if they differ: an entry
	// that was left empty is none of the API's.
	moved map[string]string
}

// New returns the form of a price for models of a type, or of every type if it is empty.
func New(r *kit.Request, currency string, t adminclient.CatalogModelType, inForce any) *Fields {
	return (&Fields{at: ofModel, currency: currency}).make(r, t, inForce)
}

// NewOfProvider is New for the price of a provider at a path, which a route may have.
func NewOfProvider(r *kit.Request, at, currency string, t adminclient.CatalogModelType, inForce any) *Fields {
	return (&Fields{at: at, title: "Price of the provider: ", currency: currency}).make(r, t, inForce)
}

func (f *Fields) make(r *kit.Request, t adminclient.CatalogModelType, inForce any) *Fields {
	f.inForce, f.moved = textsOf(f.at, inForce), map[string]string{}
	f.paths = slices.AppendSeq(f.paths, maps.Keys(f.inForce))
	f.paths = slices.AppendSeq(f.paths, maps.Keys(r.URL.Query()))
	f.paths = slices.AppendSeq(f.paths, maps.Keys(r.PostForm))

	currency := f.currency
	per := currency + " per 1 million tokens"
	f.tokens(f.at, per, t != "" && t != adminclient.CatalogModelTypeText)
	f.units(f.at+".images", currency+" per image", t != adminclient.CatalogModelTypeImage)
	f.units(f.at+".seconds", currency+" per second of video", t != adminclient.CatalogModelTypeVideo)
	f.add(currency+" per call", true, kit.Field{Name: f.at + ".server_tool", Label: "call of a tool that the provider runs"})

	f.tiers(f.at, "", per)
	if t == "" || t == adminclient.CatalogModelTypeText {
		for i := range f.entries(f.at+".service_tiers") + 1 {
			at, group := fmt.Sprintf("%s.service_tiers[%d]", f.at, i), fmt.Sprintf("Service tier %d, ", i+1)
			f.add(group+per, true, kit.Field{Name: at + ".name", Label: "name", Placeholder: "priority, flex, scale or fast"})
			f.tokens(at, group+per, true)
			f.tiers(at, group, per)
		}
	}

	for i := range f.entries(f.at+".secondary") + 1 {
		at, group := fmt.Sprintf("%s.secondary[%d]", f.at, i), fmt.Sprintf("Secondary model %d, %s", i+1, per)
		f.add(group, true, kit.Field{
			Name:    at + ".kind",
			Label:   "kind",
			Kind:    "select",
			Options: []kit.Option{{Text: "none"}, {Value: "image_tool", Text: "image tool"}, {Value: "svg"}, {Value: "advisor"}},
		})
		f.add(group, true, kit.Field{Name: at + ".model", Label: "the provider’s name of it", Placeholder: "all of the kind"})
		f.tokens(at, group, true)
		f.units(at+".images", fmt.Sprintf("Secondary model %d, %s per image", i+1, currency), true)
	}

	return f
}

// entries returns how many entries a list has in the price in force or the request.
func (f *Fields) entries(path string) int {
	index := regexp.MustCompile(`^` + regexp.QuoteMeta(path) + `\[(\d{1,3})\]`)
	n := 0
	for _, p := range f.paths {
		if m := index.FindStringSubmatch(p); m != nil {
			if i, err := strconv.Atoi(m[1]); err == nil && i < maxEntries {
				n = max(n, i+1)
			}
		}
	}
	return n
}

func (f *Fields) add(group string, seldom bool, field kit.Field) {
	field.Group, field.Seldom = f.title+group, seldom || f.title != ""
	field.Mono, field.Value = true, f.inForce[field.Name]
	f.All = append(f.All, field)
}

// tokens adds the fields of the prices of tokens, one for each kind of usage.
func (f *Fields) tokens(path, group string, seldom bool) {
	for _, line := range tokenLines {
		f.add(group, seldom || !line.usual, kit.Field{Name: path + "." + line.member, Label: line.name})
	}
}

// tiers adds the fields of the prices for long prompts below a path.
func (f *Fields) tiers(path, group, per string) {
	path += ".tiers"
	for i := range f.entries(path) + 1 {
		at, group := fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%sTier %d for long prompts, %s", group, i+1, per)
		f.add(group, true, kit.Field{Name: at + ".above_input", Label: "above input tokens", Kind: "number"})
		f.tokens(at, group, true)
	}
}

// units adds the fields of a list of prices per image or second.
func (f *Fields) units(path, group string, seldom bool) {
	for i := range f.entries(path) + spareUnits {
		for _, part := range []string{"size", "quality", "price"} {
			field := kit.Field{Name: fmt.Sprintf("%s[%d].%s", path, i, part), Label: part, Column: true}
			if part != "price" {
				field.Placeholder = "any"
			}
			f.add(group, seldom, field)
		}
	}
}

// Read returns the price that was entered.
func (f *Fields) Read(in *kit.Input) (*adminclient.CatalogPrice, error) {
	entered, err := f.Members(in)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(entered)
	if err != nil {
		return nil, fmt.Errorf("encode a price: %w", err)
	}
	price := new(adminclient.CatalogPrice)
	if err := json.Unmarshal(text, price); err != nil {
		return nil, fmt.Errorf("read a price: %w", err)
	}
	return price, nil
}

// Members returns the members of the price that was entered; nil if nothing was.
func (f *Fields) Members(in *kit.Input) (any, error) {
	entered := map[string]any{}
	for i := range f.All {
		field := &f.All[i]
		var value any = in.Text(field.Name)
		if value == "" {
			continue
		}
		if field.Kind == "number" {
			n, err := in.Int(field.Name)
			if err != nil {
				return nil, err
			}
			value = n
		}
		kit.SetMember(entered, strings.TrimPrefix(field.Name, f.at+"."), value)
	}

	if len(entered) == 0 {
		return nil, nil //nolint:nilnil // no price is a valid value
	}
	return f.listed(entered, f.at, f.at), nil
}

// Create returns the body that sets or schedules the price that was entered.
func (f *Fields) Create(in *kit.Input) (*adminclient.PriceCreate, error) {
	price, err := f.Read(in)
	if err != nil {
		return nil, err
	}
	from, err := kit.Moment("effective_from", in.Text("effective_from"))
	return &adminclient.PriceCreate{Price: *price, EffectiveFrom: from}, err
}

// listed returns members with lists in place of entries named by their indices. form and api are the paths by which the form
// and the API call them.
func (f *Fields) listed(value any, form, api string) any {
	members, ok := value.(map[string]any)
	if !ok {
		return value
	}

	var indices []int
	tree := map[string]any{}
	for name, below := range members {
		if i, err := strconv.Atoi(name); err == nil {
			indices = append(indices, i)
		} else {
			tree[name] = f.listed(below, form+"."+name, api+"."+name)
		}
	}
	if indices == nil {
		return tree
	}

	slices.Sort(indices)
	list := make([]any, len(indices))
	for to, i := range indices {
		entry, named := fmt.Sprintf("%s[%d]", form, i), fmt.Sprintf("%s[%d]", api, to)
		if entry != named {
			f.moved[named] = entry
		}
		list[to] = f.listed(members[strconv.Itoa(i)], entry, named)
	}

	return list
}

// AtField returns an error of the API with the names that the form has for the fields.
func (f *Fields) AtField(err error) error {
	refused, ok := errors.AsType[*adminclient.Error](err)
	if !ok {
		return err
	}
	for i := range refused.Problem.Errors {
		field := &refused.Problem.Errors[i].Field
		for named, entry := range f.moved {
			rest, ok := strings.CutPrefix(*field, named)
			if ok && (rest == "" || rest[0] == '.') {
				*field = entry + rest
				break
			}
		}
	}
	return err
}
