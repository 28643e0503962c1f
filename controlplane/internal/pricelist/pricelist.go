// Package pricelist imports public price lists: it converts a JSON object with an entry per model, in the format of
// LiteLLM's model_prices_and_context_window.json, to a catalog for review.
//
// Prices are exact decimals at every step. A price that the catalog cannot represent exactly is omitted, and so is every
// member whose meaning is uncertain. Every omission has a reason.
package pricelist

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"path"
	"slices"
	"strings"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/strict"
	"modelgateway/controlplane/internal/validation"
)

// Options select and change entries.
type Options struct {
	// Providers are names as in the list; empty means all known providers.
	Providers []string
	// Models are patterns of names, such as "gpt-*"; empty means all.
	Models []string
	// Markup multiplies every price; nil means 1.
	Markup *big.Rat
	// Currency is the currency of the list; empty means USD.
	Currency string
}

// Omission is an entry, or a member of one, that was not converted.
type Omission struct {
	// Model is the name of the entry. Member is empty if the whole entry was omitted.
	Model, Member string
	Reason        string
}

// Proposal is a catalog for review.
type Proposal struct {
	Document catalog.Document
	// Omitted are sorted by model.
	Omitted []Omission
	// source has the name of the entry that each model comes from.
	source map[string]string
}

// maxEntries bounds the time that a list takes to read. Public lists have some thousands.
const maxEntries = 20_000

// maxPatterns and maxPattern bound the patterns of an import, which are compared with every entry.
const maxPatterns, maxPattern = 100, 200

// check returns validation.Errors if an option is invalid.
func (o *Options) check() error {
	var invalid validation.Errors
	if len(o.Models) > maxPatterns {
		invalid.Add("models", "must have at most %d patterns", maxPatterns)
	}
	for i, pattern := range o.Models {
		if _, err := path.Match(pattern, ""); err != nil || len(pattern) > maxPattern {
			invalid.Add(validation.Index("models", i), "must be a pattern such as example-*")
		}
	}
	if o.Markup != nil && o.Markup.Sign() <= 0 {
		invalid.Add("markup", "must be positive")
	}
	return invalid.Err()
}

// ParseMarkup returns the factor of a markup such as "1.2" or "20%"; nil for an empty text. The error is validation.Errors.
func ParseMarkup(text string) (*big.Rat, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nil means no markup
	}

	number, isPercent := strings.CutSuffix(strings.TrimSpace(text), "%")
	number = strings.TrimSpace(number)
	factor, ok := new(big.Rat), false
	if len(number) <= 20 && !strings.ContainsAny(number, "eEpPxXbBoO_/") {
		factor, ok = factor.SetString(number)
	}
	if !ok {
		return nil, validation.New("markup", "must be a factor such as 1.2, or a percentage such as 20%%")
	}
	if isPercent {
		factor.Add(big.NewRat(1, 1), factor.Quo(factor, big.NewRat(100, 1)))
	}

	return factor, nil
}

// Read converts a price list. The error is validation.Errors.
func Read(text []byte, o Options) (*Proposal, error) {
	if err := o.check(); err != nil {
		return nil, err
	}

	var list map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err := decoder.Decode(&list)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("the file continues after its JSON object")
		}
	}

	if err == nil && list == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return nil, validation.New("prices", "is not a price list: %v", err)
	}
	if len(list) > maxEntries {
		return nil, validation.New("prices", "has %d entries, and may have %d", len(list), maxEntries)
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(list)), isObject) && len(list) > 0 {
		return nil, validation.New("prices", "is not a price list: none of its entries is an object")
	}

	p := &Proposal{Document: catalog.Document{Currency: cmp.Or(o.Currency, catalog.DefaultCurrency)}, source: map[string]string{}}
	r := reader{
		options:  o,
		proposal: p,
		used:     map[string]bool{},
		variants: map[string][]variant{},
	}

	for _, name := range slices.Sorted(maps.Keys(list)) {
		if members, ok := list[name].(map[string]any); ok {
			r.entry(name, members)
		} else {
			r.omit(name, "", "the entry is not an object")
		}
	}

	r.placeVariants()
	slices.SortStableFunc(p.Omitted, func(a, b Omission) int { return cmp.Compare(a.Model, b.Model) })

	for _, name := range slices.Sorted(maps.Keys(r.used)) {
		p.Document.Providers = append(p.Document.Providers, providers[name].entry(name))
	}

	return p, nil
}

// reader builds the proposal.
type reader struct {
	options  Options
	proposal *Proposal
	used     map[string]bool
	// variants has the entries for sizes and qualities, by model.
	variants map[string][]variant
}

func isObject(v any) bool {
	_, is := v.(map[string]any)
	return is
}

func (r *reader) omit(model, member, format string, args ...any) {
	r.proposal.Omitted = append(r.proposal.Omitted, Omission{model, member, fmt.Sprintf(format, args...)})
}

// example is the name of the entry that explains the format.
const example = "sample_spec"

// entry converts one entry.
func (r *reader) entry(name string, members map[string]any) {
	provider, _ := members["litellm_provider"].(string)
	if name == example || !r.wanted(name, provider) {
		return
	}

	known, ok := providers[provider]
	if provider == "" {
		r.omit(name, "", "it has no litellm_provider")
		return
	}

	if !ok {
		r.omit(name, "", "the provider %q is not known to support any format of the gateway", provider)
		return
	}

	mode, _ := members["mode"].(string)
	kind, formats, reason := known.offers(mode, members["supported_endpoints"])
	if reason != "" {
		r.omit(name, "", "%s", reason)
		return
	}

	upstream := strings.TrimPrefix(name, provider+"/")
	if strings.HasPrefix(upstream, "ft:") {
		r.omit(name, "", "it is the base of fine-tuned models")
		return
	}

	m := &member{
		reader:    r,
		name:      name,
		of:        members,
		kind:      kind,
		anthropic: provider == "anthropic",
	}
	if known.all && strings.Contains(upstream, "/") {
		r.readVariant(m, provider, upstream, formats)
		return
	}

	if other, twice := r.proposal.source[upstream]; twice {
		r.omit(name, "", "the entry %q has the same model name", other)
		return
	}

	price, ok := m.price()
	if !ok {
		return
	}

	r.proposal.source[upstream], r.used[provider] = name, true
	r.proposal.Document.Models = append(r.proposal.Document.Models, catalog.ModelEntry{
		ID:              upstream,
		Type:            kind,
		OwnedBy:         id(provider),
		Price:           price,
		ContextWindow:   m.limit("max_input_tokens"),
		MaxOutputTokens: cmp.Or(m.limit("max_output_tokens"), m.limit("max_tokens")),
		Routes:          []catalog.RouteEntry{{Provider: id(provider), UpstreamModel: upstream, Formats: formats}},
	})

	m.rest()
}

func (r *reader) wanted(name, provider string) bool {
	if len(r.options.Providers) > 0 && !slices.Contains(r.options.Providers, provider) {
		return false
	}
	return len(r.options.Models) == 0 || slices.ContainsFunc(r.options.Models, func(pattern string) bool {
		whole, _ := path.Match(pattern, name) // the pattern was checked
		short, _ := path.Match(pattern, strings.TrimPrefix(name, provider+"/"))
		of, _ := path.Match(pattern, path.Base(name)) // a variant by size or quality
		return whole || short || of
	})
}

// YAML returns the proposal, followed by the omissions as comments.
func (p *Proposal) YAML() ([]byte, error) {
	text, err := json.Marshal(&p.Document)
	if err != nil {
		return nil, fmt.Errorf("write the proposal: %w", err)
	}

	body, err := strict.ToYAML(text)
	if err != nil {
		return nil, err
	}

	var out bytes.Buffer
	fmt.Fprintf(
		&out,
		"# %d models converted from a public price list. Review names, limits, prices and addresses before use.\n",
		len(p.Document.Models),
	)
	out.WriteString("# Applying a catalog removes the objects it does not contain: merge this into your catalog.\n")
	out.Write(body)
	if len(p.Omitted) > 0 {
		out.WriteString("\n# Omitted:\n")
	}

	for _, o := range p.Omitted {
		fmt.Fprintf(&out, "# - %s\n", o)
	}

	return out.Bytes(), nil
}

// String returns one line.
func (o Omission) String() string {
	text := o.Model + ": " + o.Reason
	if o.Member != "" {
		text = o.Model + ", " + o.Member + ": " + o.Reason
	}
	return strings.Join(strings.Fields(text), " ")
}
