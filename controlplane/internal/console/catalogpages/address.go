package catalogpages

import (
	"encoding/json"
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
	"modelgateway/shared/catalogkv"
)

// addressField is the field of the addresses of a provider or a route.
func addressField(name string, now *adminclient.CatalogAddresses) (kit.Field, error) {
	f := kit.Field{
		Name:  name,
		Label: "Addresses",
		Kind:  "area",
		Rows:  4,
		Mono:  true,
		Hint: `By format, such as {"chat": {"path": "/v4/chat/completions", "query": {"api-version": "preview"}}}. ` +
			"Empty means the usual paths, such as /v1/chat/completions.",
	}
	if now != nil {
		text, err := json.MarshalIndent(now, "", "  ")
		if err != nil {
			return f, fmt.Errorf("encode addresses: %w", err)
		}
		f.Value = string(text)
	}
	return f, nil
}

// readAddresses reads the field; nil if it is empty.
func readAddresses(in *kit.Input, name string) (*adminclient.CatalogAddresses, error) {
	text := strings.TrimSpace(in.Text(name))
	if text == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	var read adminclient.CatalogAddresses
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&read); err != nil {
		return nil, kit.Invalid(name, "cannot be read: "+strings.TrimPrefix(err.Error(), "json: "))
	}
	return &read, nil
}

// addresses sets the addresses to those of the form. A merge patch names what is removed.
func (p patch) addresses(in *kit.Input, now *adminclient.CatalogAddresses) error {
	const name = "addresses"
	after, err := readAddresses(in, name)
	if err != nil {
		return err
	}
	if after == nil {
		p[name] = nil
		return nil
	}
	if now == nil {
		now = &adminclient.CatalogAddresses{}
	}

	before, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("encode addresses: %w", err)
	}
	wanted, err := json.Marshal(after)
	if err != nil {
		return fmt.Errorf("encode addresses: %w", err)
	}
	change, err := jsonpatch.CreateMergePatch(before, wanted)
	if err != nil {
		return fmt.Errorf("compare addresses: %w", err)
	}
	p[name] = json.RawMessage(change)
	return nil
}

// called is an address that the calls of a route go to.
type called struct {
	Format string
	// Stream is set for requests for a stream, if they have another address.
	Stream bool
	URL    string
}

// calledBy returns the addresses that the calls of a route go to.
func calledBy(p *adminclient.CatalogProvider, r *adminclient.CatalogRoute) (all []called) {
	provider := catalogkv.Provider{BaseURL: p.BaseURL, Addresses: addressesOf(p.Addresses)}
	route := catalogkv.Route{UpstreamModel: r.UpstreamModel, Addresses: addressesOf(r.Addresses)}
	for _, f := range r.Formats {
		format := catalogkv.Format(f)
		whole, stream := provider.URL(provider.Target(&route, format, false)), provider.URL(provider.Target(&route, format, true))
		all = append(all, called{string(f), false, whole})
		if stream != whole {
			all = append(all, called{string(f), true, stream})
		}
	}
	return all
}

func addressesOf(all *adminclient.CatalogAddresses) catalogkv.Addresses {
	if all == nil {
		return nil
	}
	addresses := catalogkv.Addresses{}
	for f, a := range *all {
		addresses[catalogkv.Format(f)] = catalogkv.Address{Path: name(a.Path), StreamPath: name(a.StreamPath), Query: a.Query}
	}
	return addresses
}
