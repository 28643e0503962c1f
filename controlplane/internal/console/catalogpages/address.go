package catalogpages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/shared/catalogkv"
)

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
