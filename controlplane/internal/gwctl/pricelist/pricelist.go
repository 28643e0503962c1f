// Package pricelist owns the import of public price lists: a JSON object with
// an entry per model, in the form that model_prices_and_context_window.json of
// LiteLLM made common, becomes a catalog for a person to review.
//
// Prices are decimals from beginning to end: one that the catalog cannot hold
// to the last digit is not taken over, and neither is anything else whose
// meaning here is not certain. What is left out is told with the reason.
package pricelist

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"path"
	"slices"
	"strings"

	"modelgateway/controlplane/internal/catalog"
	"modelgateway/controlplane/internal/strict"
)

// Options say what to take over.
type Options struct {
	// Providers are names as in the list; empty means all that are known.
	Providers []string
	// Models are patterns of names, such as "gpt-*"; empty means all.
	Models []string
	// Markup multiplies every price; nil means 1.
	Markup *big.Rat
	// Currency is that of the list; empty means USD.
	Currency string
}

// Omission is what was not taken over.
type Omission struct {
	// Model is the entry, Member the member of it; empty if it is the whole entry.
	Model, Member string
	Reason        string
}

// Proposal is a catalog for review.
type Proposal struct {
	Document catalog.Document
	// Omitted are sorted by model.
	Omitted []Omission
}

// Read makes a proposal of a list.
func Read(text []byte, o Options) (*Proposal, error) {
	var list map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&list); err != nil {
		return nil, fmt.Errorf("is no price list: %w", err)
	}
	for _, pattern := range o.Models {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("the pattern %q: %w", pattern, err)
		}
	}
	if o.Markup != nil && o.Markup.Sign() <= 0 {
		return nil, errors.New("the markup must be positive")
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(list)), isObject) && len(list) > 0 {
		return nil, errors.New("is no price list: none of its entries is an object")
	}
	p := &Proposal{Document: catalog.Document{Currency: cmp.Or(o.Currency, catalog.DefaultCurrency)}}
	r := reader{options: o, proposal: p, taken: map[string]string{}, used: map[string]bool{}, sized: map[string][]sized{}}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if members, ok := list[name].(map[string]any); ok {
			r.entry(name, members)
		} else {
			r.omit(name, "", "it is no object")
		}
	}
	r.placeSized()
	slices.SortStableFunc(p.Omitted, func(a, b Omission) int { return cmp.Compare(a.Model, b.Model) })
	for _, name := range slices.Sorted(maps.Keys(r.used)) {
		p.Document.Providers = append(p.Document.Providers, providers[name].entry(name))
	}
	return p, nil
}

// reader makes the proposal.
type reader struct {
	options  Options
	proposal *Proposal
	// taken is the entry that each model came from.
	taken map[string]string
	used  map[string]bool
	// sized are the entries for sizes and qualities, by model.
	sized map[string][]sized
}

func isObject(v any) bool {
	_, is := v.(map[string]any)
	return is
}

func (r *reader) omit(model, member, format string, args ...any) {
	r.proposal.Omitted = append(r.proposal.Omitted, Omission{model, member, fmt.Sprintf(format, args...)})
}

// example is an entry that explains the form.
const example = "sample_spec"

// entry takes one model over.
func (r *reader) entry(name string, members map[string]any) {
	provider, _ := members["litellm_provider"].(string)
	if name == example || !r.wanted(name, provider) {
		return
	}
	known, ok := providers[provider]
	if !ok {
		r.omit(name, "", "its provider %q speaks none of the gateway's formats, as far as is known here", provider)
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
		r.omit(name, "", "it stands for models that are still to be tuned")
		return
	}
	m := &member{reader: r, name: name, of: members, kind: kind, anthropic: provider == "anthropic"}
	if known.all && strings.Contains(upstream, "/") {
		r.readSized(m, provider, upstream, formats)
		return
	}
	if other, twice := r.taken[upstream]; twice {
		r.omit(name, "", "its name is taken by the entry %q", other)
		return
	}
	price, ok := m.price()
	if !ok {
		return
	}
	r.taken[upstream], r.used[provider] = name, true
	r.proposal.Document.Models = append(r.proposal.Document.Models, catalog.ModelEntry{
		ID: upstream, Type: kind, OwnedBy: id(provider), Price: price,
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
		of, _ := path.Match(pattern, path.Base(name)) // the model of a size or quality
		return whole || short || of
	})
}

// YAML writes the proposal, with what was left out as comments behind it.
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
	fmt.Fprintf(&out, "# A proposal made of a public price list: %d models. Review it: names, limits, prices and addresses change.\n", len(p.Document.Models))
	out.WriteString("# Applying a catalog removes what it does not name: merge this into yours.\n")
	out.Write(body)
	if len(p.Omitted) > 0 {
		out.WriteString("\n# Not taken over:\n")
	}
	for _, o := range p.Omitted {
		fmt.Fprintf(&out, "# - %s\n", o)
	}
	return out.Bytes(), nil
}

// String is one line, whatever the list holds.
func (o Omission) String() string {
	text := o.Model + ": " + o.Reason
	if o.Member != "" {
		text = o.Model + ", " + o.Member + ": " + o.Reason
	}
	return strings.Join(strings.Fields(text), " ")
}
