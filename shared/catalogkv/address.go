package catalogkv

import (
	"net/url"
	"strings"
)

// ModelPlace stands in the path of an Address for the route's name of the model, in the escaped form of a path segment.
const ModelPlace = "{model}"

// Address is where the calls of a format go, below the base URL of the provider.
type Address struct {
	// Path is appended to the base URL as it is; empty means Format.Path. Jobs of videos are below it.
	Path string `json:"path,omitempty"`
	// StreamPath takes the place of Path in requests for a stream; empty: there is no difference.
	StreamPath string `json:"stream_path,omitempty"`
	// Query is sent with every call.
	Query map[string]string `json:"query,omitempty"`
}

// Addresses are the addresses of formats that are not at Format.Path.
type Addresses map[Format]Address

// Target is the request target of a call below the base URL of the provider. Path and Query are escaped.
type Target struct{ Path, Query string }

// Target returns where a call of a format on a route of the provider goes. An address of the route takes the place of the
// provider's for the same format.
func (p *Provider) Target(r *Route, f Format, stream bool) Target {
	address, has := r.Addresses[f]
	if !has {
		address = p.Addresses[f]
	}

	path := address.Path
	if stream && address.StreamPath != "" {
		path = address.StreamPath
	}
	if path == "" {
		path = f.Path()
	}

	values := make(url.Values, len(address.Query))
	for name, value := range address.Query {
		values.Set(name, value)
	}
	return Target{
		Path:  strings.ReplaceAll(path, ModelPlace, url.PathEscape(r.UpstreamModel)),
		Query: values.Encode(),
	}
}

// URL returns the whole address of a target at the provider.
func (p *Provider) URL(t Target) string {
	if t.Query == "" {
		return p.BaseURL + t.Path
	}
	return p.BaseURL + t.Path + "?" + t.Query
}
